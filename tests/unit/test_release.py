"""Versions and names agree everywhere; what raises a version and what stops a release; the rules of the workflows."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys

import pytest
import yaml

from gliner_bento import __version__
from gliner_bento.settings import PROJECT_ROOT, Settings
from tools.release import __main__ as release
from tools.release import advisories, changelog, containers, images, places, site, table, tools, workflows

MODEL = {"1.0.0": "0b3db07112fea442"}
"""The first digits of the weights' SHA-256 by the version of gliner-bento-demo: other weights are another version."""


@pytest.fixture
def tree(tmp_path):
    """A copy of the files that show a value."""
    for name in {"CHANGELOG.md", "gliner_bento/__init__.py", "release.toml", *(place.file for place in places.PLACES)}:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT_ROOT / name, tmp_path / name)
    return tmp_path


def decide(tree) -> None:
    """As a person fills in release.toml."""
    file = tree / "release.toml"
    decided = file.read_text().replace('"owner.example"', '"Ada & Co"').replace(".example", ".test")
    file.write_text(re.sub(r'^base = "([^@"]+).*?"', rf'base = "\1@sha256:{"0" * 64}"', decided, flags=re.MULTILINE))


def test_all_places_show_the_version_and_the_names():
    assert list(places.stale()) == []
    assert places.version() == __version__


def test_other_weights_are_another_version_of_their_package():
    weights = hashlib.sha256((PROJECT_ROOT / "models/demo/model.safetensors").read_bytes()).hexdigest()
    assert weights.startswith(MODEL[places.model_version()])
    assert (PROJECT_ROOT / "models/LICENSE").read_bytes() == (PROJECT_ROOT / "LICENSE").read_bytes()


def test_names_and_version_are_written_to_every_place_and_stay_valid(tree):
    decide(tree)
    places.set_version("7.8.9", tree)
    assert {line.partition(":")[0] for line in places.stale(tree)} == {place.file for place in places.PLACES}
    assert set(places.write(tree)) == {place.file for place in places.PLACES}
    assert list(places.stale(tree)) == []
    assert places.write(tree) == []
    assert places.placeholders(tree) == []
    for name in ("CITATION.cff", "deploy/helm/gliner-bento/Chart.yaml", "deploy/compose/docker-compose.yml"):
        assert "7.8.9" in json.dumps(yaml.safe_load((tree / name).read_text()))
    chart = yaml.safe_load((tree / "deploy/helm/gliner-bento/Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == "7.8.9"
    assert [image["image"][-6:] for image in yaml.safe_load(chart["annotations"]["artifacthub.io/images"])] == [
        ":7.8.9"
    ]
    links = yaml.safe_load(chart["annotations"]["artifacthub.io/links"])
    assert [(link["name"], ".test/" in link["url"]) for link in links] == [("Documentation", True), ("Support", True)]
    project = pytest.importorskip("tomllib").loads((tree / "pyproject.toml").read_text())["project"]
    assert project["authors"] == [{"name": "Ada & Co"}]
    assert not {url for url in project["urls"].values() if places.PLACEHOLDER in url}


def test_a_place_that_no_longer_shows_its_value_is_noticed(tree):
    (tree / "CITATION.cff").write_text("cff-version: 1.2.0\n")
    with pytest.raises(ValueError, match=r"^CITATION\.cff: nothing matches"):
        list(places.stale(tree))


@pytest.mark.parametrize("base", ["python:3.11-slim", "python@sha256:12", "python:3.11-slim@sha256:"])
def test_a_base_of_images_without_its_digest_is_no_decision(tree, base):
    decide(tree)
    file = tree / "release.toml"
    file.write_text(re.sub(r"^base = .*", f'base = "{base}"', file.read_text(), flags=re.MULTILINE))
    assert places.placeholders(tree) == ["base (by its digest)"]


def test_a_placeholder_stops_a_release_with_one_line(capsys):
    if not places.placeholders():
        pytest.skip("a person has decided")
    assert release.main(["ready"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("release: release.toml has placeholders: owner, contact, ")


@pytest.mark.parametrize(
    ("new", "problem"), [("1.0", "1.0 is no version"), ("0.0.9", "0.0.9 is lower than"), ("v1.0.0", "v1.0.0 is no")]
)
def test_a_wrong_version_is_refused_in_one_line_and_changes_nothing(new, problem, capsys):
    assert release.main(["version", new]) == 1
    assert capsys.readouterr().err.startswith(f"release: {problem}")
    assert places.version() == __version__


def test_a_tag_that_is_not_the_version_stops_a_release(tree, monkeypatch):
    decide(tree)
    places.write(tree)
    monkeypatch.setattr(release.places, "placeholders", lambda: [])
    monkeypatch.setattr(release.places, "stale", lambda: [])
    with pytest.raises(ValueError, match=rf"the tag is v9\.9\.9, the version {__version__}"):
        release.ready("v9.9.9")


def test_the_changelog_is_cut_once(tree):
    file = tree / "CHANGELOG.md"
    file.write_text("# Changelog\n\n## [Unreleased]\n\n- New.\n\n## [0.1.0] - 2025-01-01\n\n- Old.\n")
    changelog.cut("0.3.0", "2026-01-31", tree)
    assert "## [Unreleased]\n\n## [0.3.0] - 2026-01-31\n\n- New.\n" in file.read_text()
    assert changelog.section("0.3.0", tree) == "- New."
    assert (changelog.date_of("0.3.0", tree), changelog.section("0.1.0", tree)) == ("2026-01-31", "- Old.")
    changelog.cut("0.3.0", "2026-02-01", tree)
    assert changelog.date_of("0.3.0", tree) == "2026-02-01"
    with pytest.raises(ValueError, match="no unreleased changes"):
        changelog.cut("0.4.0", "2026-02-01", tree)
    with pytest.raises(ValueError, match=r"no section 0\.4\.0, or an empty one"):
        changelog.section("0.4.0", tree)
    file.write_text(file.read_text().replace("## [Unreleased]\n", "## [Unreleased]\n\n- Late.\n"))
    with pytest.raises(ValueError, match=r"both a section 0\.3\.0 and unreleased"):
        changelog.cut("0.3.0", "2026-02-01", tree)


def test_the_notes_of_a_release_lead_to_its_version_in_the_repository(tree, capsys):
    assert release.main(["notes"]) == 0
    at = f"{places.names()['repository']}/blob/v{__version__}"
    assert f"[Release notes]({at}/docs/releases/{__version__}.md)" in capsys.readouterr().out
    with pytest.raises(ValueError, match=rf"no release notes: docs/releases/{re.escape(__version__)}\.md"):
        changelog.notes(__version__, tree)


OF_0_1_0 = {
    **{"model": "models/demo", "device": "auto", "dtype": "auto", "max_batch_size": 32, "max_batch_tokens": 0},
    **{"batch_lookahead": 128, "queue_capacity": 4096, "request_timeout_s": 30.0, "inference_lanes": 0},
    **{"torch_threads": 0, "tokenizer_threads": 1, "default_threshold": 0.5, "default_relation_threshold": 0.5},
    **{"max_labels": 1000, "max_text_chars": 200_000, "max_batch_items": 256, "max_body_bytes": 16_777_216},
    "route_prefix": "/gliner",
}
"""The settings of version 0.1.0, with its defaults."""


def test_a_settings_file_of_0_1_0_is_read(tmp_path):
    file = tmp_path / "configuration.yaml"
    sections = {"gliner": OF_0_1_0, "services": {name: {"workers": 1} for name in ("GLiNERService", "GLiNERRunner")}}
    file.write_text(json.dumps(sections))
    read = Settings.load(file=file)
    assert {name: getattr(read, name) for name in OF_0_1_0 if name != "model"}.items() <= OF_0_1_0.items()


def test_an_image_says_what_it_was_built_of(tmp_path):
    labels = images.labels()
    assert labels["org.opencontainers.image.version"] == __version__
    assert labels["org.opencontainers.image.source"] == places.names()["repository"]
    assert labels["org.opencontainers.image.created"].endswith("Z")
    assert all(name.startswith("org.opencontainers.image.") and "\n" not in text for name, text in labels.items())


def test_docs_are_published_beside_those_of_other_versions(tmp_path, monkeypatch):
    built = tmp_path / "built"
    with pytest.raises(ValueError, match="run `make docs`"):
        site.publish(tmp_path / "all", built)
    built.mkdir()
    for version, text in (("0.9.0", "nine"), ("0.10.0", "ten"), ("0.9.1", "patch")):
        (built / "index.html").write_text(text)
        monkeypatch.setattr(site, "version", lambda now=version: now)
        assert site.publish(tmp_path / "all", built).name == version
    assert (tmp_path / "all/latest/index.html").read_text() == "ten"
    assert json.loads((tmp_path / "all/versions.json").read_text()) == ["0.10.0", "0.9.1", "0.9.0"]
    assert (tmp_path / "all/0.9.1/index.html").read_text() == "patch"


def test_workflows_pin_actions_call_targets_and_ask_for_no_more_than_they_need(tmp_path):
    assert [file.name for file in workflows.files()] == ["ci.yml", "nightly.yml", "release.yml"]
    assert list(workflows.problems()) == []
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    (tmp_path / "Makefile").write_text("test: setup\n")
    (folder / "bad.yml").write_text(
        "jobs:\n  a:\n    steps:\n      - uses: actions/checkout@v4\n      - run: make tset\n"
    )
    assert [line.partition(": ")[2].partition(" ")[0] for line in workflows.problems(tmp_path)] == [
        *("actions/checkout@v4", "the", "the")
    ]


def test_a_failed_row_fails_the_table_and_hides_no_other(capsys):
    def fails() -> str:
        raise ValueError("this\nis wrong")

    def missing() -> str:
        raise table.NotHere("no engine")

    def undecided() -> str:
        raise table.ForAPerson("owner")

    def ends() -> str:
        subprocess.run([sys.executable, "-S", "-c", "raise SystemExit(3)"], check=True)
        raise AssertionError

    assert table.run({"e": ends, "a": fails, "b": missing, "c": lambda: "fine", "d": undecided}) == 1
    printed = capsys.readouterr().out
    assert "| a | FAILED | this is wrong | " in printed
    assert "| e | FAILED | CalledProcessError: " in printed
    assert "| b | not here | no engine | " in printed
    assert "| c | ok | fine | " in printed
    assert "| d | FOR A PERSON | owner | " in printed
    assert printed.endswith("\n5 checks: 1 ok; 2 FAILED (e, a); 1 FOR A PERSON (d); 1 not here (b)\n")
    assert table.run({"d": undecided}) == 1
    assert table.run({"b": missing, "c": lambda: "fine"}) == 0


def test_a_package_that_cannot_be_looked_up_is_not_one_without_vulnerabilities():
    fine = {"name": "click", "version": "8.5.1", "vulns": []}
    skipped = {"name": "rich", "skip_reason": "not found on PyPI and could not be audited"}
    bad = {"name": "jinja2", "version": "2.4.1", "vulns": [{"id": "PYSEC-2019-217"}]}
    assert advisories.verdict([fine]) == "1 packages, none with a known vulnerability"
    with pytest.raises(table.NotHere, match="no advisories for 1 of 2 packages, first rich"):
        advisories.verdict([fine, skipped])
    with pytest.raises(ValueError, match="jinja2: PYSEC-2019-217"):
        advisories.verdict([fine, skipped, bad])


@pytest.mark.parametrize(
    ("printed", "error"),
    [
        ("usage: pip-audit\npip-audit: error: unrecognized arguments: --bad", ValueError),
        ("ERROR:pip_audit._cli:invalid requirements input: requirements.lock", ValueError),
        ("Traceback (most recent call last):\nKeyError: 'info'", ValueError),
        ("", ValueError),
        ("  raise ProxyError(e)\nrequests.exceptions.ProxyError: HTTPSConnectionPool(host='pypi.org')", table.NotHere),
        ("pip_audit._service.interface.ServiceError", table.NotHere),
        ("ERROR:pip_audit._cli:Tip: your network may be blocking this service.", table.NotHere),
    ],
)
def test_an_audit_that_fails_is_not_an_index_without_an_answer(tmp_path, printed, error):
    audit = tmp_path / "pip-audit"
    (tmp_path / "stderr").write_text(printed)
    audit.write_text(f"#!/bin/sh\ncat '{tmp_path}/stderr' >&2\nexit 2\n")
    audit.chmod(0o700)
    with pytest.raises(error, match=re.escape(printed.rpartition("\n")[2]) or "it prints nothing"):
        advisories.audit(audit, tmp_path / "requirements.lock")


_RETRY = (
    "WARNING: Retrying (Retry(total={}, connect=None)) after connection broken by 'NewConnectionError()': /simple/a/"
)


@pytest.mark.parametrize(
    ("printed", "error"),
    [
        (f"{_RETRY.format(1)}\n{_RETRY.format(0)}\nERROR: No matching distribution found for twine", table.NotHere),
        ("ERROR: Could not install packages due to an OSError: Max retries exceeded with url: /a.whl", table.NotHere),
        ("npm error code ENOTFOUND\nnpm error syscall getaddrinfo", table.NotHere),
        ("npm ERR! code ECONNREFUSED\nnpm ERR! network", table.NotHere),
        ("Err:1 http://deb.debian.org bookworm\n  Could not resolve 'deb.debian.org'\nE: Failed", table.NotHere),
        (f"{_RETRY.format(4)}\nerror: subprocess-exited-with-error", table.CommandFailed),
        ("ERROR: Could not find a version that satisfies twine==0 (from versions: 1, 2)", table.CommandFailed),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left", table.CommandFailed),
        ("npm error code E404\nnpm error 404 Not Found", table.CommandFailed),
        ("npm error code EINTEGRITY", table.CommandFailed),
        ("E: dpkg was interrupted", table.CommandFailed),
        ("", table.CommandFailed),
    ],
)
def test_a_tool_that_cannot_be_installed_is_not_one_that_cannot_be_reached(tmp_path, printed, error):
    (tmp_path / "printed").write_text(printed)
    with pytest.raises(error, match="exit code 3") as raised:
        tools.fetched("sh", "-c", f"cat '{tmp_path}/printed' >&2; exit 3")
    assert raised.type is error


@pytest.mark.parametrize(
    ("lists", "error"),
    [((), table.NotHere), (("lock",), table.NotHere), (("a_main_Packages.lz4",), table.CommandFailed)],
)
def test_a_package_that_apt_does_not_know_is_a_mistake_once_apt_has_lists(tmp_path, monkeypatch, lists, error):
    monkeypatch.setattr(tools, "_APT_LISTS", tmp_path)
    for name in lists:
        (tmp_path / name).touch()
    with pytest.raises(error) as raised:
        tools.fetched("sh", "-c", "echo 'E: Unable to locate package mmdebstrapp' >&2; exit 100")
    assert raised.type is error


def test_pip_without_an_answer_of_its_index_is_recognized():
    pip = (
        sys.executable,
        "-m",
        "pip",
        "--isolated",
        "--disable-pip-version-check",
        "download",
        "--retries",
        "1",
        "twine",
    )
    with pytest.raises(table.NotHere, match="exit code 1"):
        tools.fetched(*pip, "--index-url", "http://127.0.0.1:9/simple")
    with pytest.raises(table.CommandFailed, match="exit code 1"):
        tools.fetched(*pip, "--no-index")


@pytest.mark.parametrize(
    ("versions", "runtime", "debians"), [("v1", "crun", True), ("v1", "runc", False), ("v2", "crun", False)]
)
def test_podman_is_told_to_use_a_runtime_that_starts_containers(tmp_path, monkeypatch, versions, runtime, debians):
    about = {"host": {"cgroupVersion": versions, "ociRuntime": {"name": runtime}}}
    (tmp_path / "podman").write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(about)}\nEND\n")
    (tmp_path / "podman").chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CONTAINERS_CONF", raising=False)
    monkeypatch.setattr(containers, "files_of", lambda package: tmp_path / package)
    assert containers.runtime(tmp_path) == ({"CONTAINERS_CONF": f"{tmp_path}/containers.conf"} if debians else {})
    if debians:
        written = pytest.importorskip("tomllib").loads((tmp_path / "containers.conf").read_text())
        assert written["engine"]["runtimes"][written["engine"]["runtime"]] == [f"{tmp_path}/runc/usr/sbin/runc"]


def test_an_image_that_misses_a_target_fails_its_row():
    targets = [{"name": "until HEALTHCHECK says healthy", "value": 27.2, "met": True}]
    measured = {"size_gb": 1.5, "targets": targets}
    assert containers.verdict(measured) == "1.50 GB, healthy after 27 s, 1 of 1 targets met"
    targets.append({"name": "processes of root", "value": 2, "met": False})
    with pytest.raises(ValueError, match=r"^missed: processes of root: 2$"):
        containers.verdict(measured)


def test_the_names_of_the_workflow_need_no_package():
    command = [sys.executable, "-I", "-S", "-c", "import sys; sys.path.insert(0, '.'); import tools.release.places"]
    subprocess.run(command, cwd=PROJECT_ROOT, check=True)
