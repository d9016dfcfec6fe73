"""Rules of the repository that import-linter cannot say."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import grimp
import pytest

from gliner_bento.adapters.base import AdapterSettings
from gliner_bento.engine.checkpoint.word_splitters import WORD_SPLITTERS
from gliner_bento.engine.options import EngineOptions
from gliner_bento.errors import StartupError
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.replicas.fleet.fleet import FleetOptions
from gliner_bento.scheduler.scheduler import SchedulerConfig
from gliner_bento.settings import Settings
from gliner_bento.settings.configuration import PACKAGE, PROJECT_ROOT
from gliner_bento.settings.formats import FIELDS
from gliner_bento.telemetry.tracing import start_tracing
from tools import pages

SOURCES = [
    "service.py",
    *sorted(
        path.relative_to(PROJECT_ROOT).as_posix()
        for root in ("benchmark", "deploy/containers", "gliner_bento", "reliability", "runners", "training")
        for path in (PROJECT_ROOT / root).rglob("*.py")
    ),
]

ENGINE = ("gliner_bento/engine/", "gliner_bento/adapters/")
TRAINING = ("training/",)
JOBS = ("benchmark/jobs/",)
ALLOWED_IN: dict[str, tuple[str, ...]] = {
    "bentoml": ("service.py", "runners/", "benchmark/jobs/naive_service.py"),
    "_bentoml_sdk": (),
    "_bentoml_impl": (),
    "torch": (*ENGINE, *TRAINING, *JOBS, "reliability/invariance.py"),
    "gliner": ("gliner_bento/engine/", *TRAINING, *JOBS),
    "gliclass": ("gliner_bento/engine/", *JOBS),
    "transformers": ("gliner_bento/engine/", *JOBS),
    "peft": ("gliner_bento/adapters/", *JOBS),
    "starlette": (
        *("gliner_bento/gateway/", "gliner_bento/http/", "gliner_bento/ray/app.py", "gliner_bento/ray/server.py"),
        *("gliner_bento/telemetry/log.py", "gliner_bento/process/app.py", "gliner_bento/replicas/http/server.py"),
        "gliner_bento/asgi.py",
    ),
    "ray": ("gliner_bento/ray/", "gliner_bento/replicas/ray/"),
    "redis": ("gliner_bento/gateway/redis_mappings.py",),
    "uvicorn": (
        *("gliner_bento/gateway/http_protocol.py", "gliner_bento/gateway/policy/client_address.py"),
        *("gliner_bento/ray/server.py", "benchmark/jobs/overhead.py"),
    ),
    "haystack": ("gliner_bento/integrations/haystack.py",),
    "pandas": ("gliner_bento/integrations/dataframes.py", "gliner_bento/client/notebook.py"),
    "polars": ("gliner_bento/integrations/dataframes.py",),
    "shtab": ("gliner_bento/cli/completion.py",),
    "spacy": ("gliner_bento/integrations/spacy.py",),
    "httpx": (
        *("gliner_bento/client/", "gliner_bento/cli/", "gliner_bento/loadtest/", "gliner_bento/process/in_process.py"),
        *("gliner_bento/serve/backends.py", "benchmark/server.py", "benchmark/side_by_side.py", "reliability/"),
        *("benchmark/jobs/redaction.py", "benchmark/jobs/personal_data.py"),
        "deploy/containers/",
    ),
    "rich": ("gliner_bento/cli/",),
    "lxml": ("gliner_bento/documents/",),
    "pypdf": ("gliner_bento/documents/pdf.py", "reliability/document_files.py"),
    "pyarrow": ("gliner_bento/ray/", "gliner_bento/files/records/columns.py"),
    "fast_gliner": JOBS,
    "contextvars": ("gliner_bento/gateway/http_protocol.py", "gliner_bento/replicas/ray/client.py"),
    "psutil": ("benchmark/server.py", "reliability/served.py", "reliability/faults.py"),
    "prometheus_client": ("gliner_bento/telemetry/metrics.py",),
    "opentelemetry": ("gliner_bento/telemetry/otel.py",),
    "argparse": (
        *("gliner_bento/cli/", "benchmark/__main__.py", "benchmark/side_by_side.py", "deploy/containers/__main__.py"),
        *("reliability/__main__.py", "training/__main__.py"),
        "gliner_bento/files/graph/neo4j_loader.py",  # a script of its own once it is written
    ),
}
"""The files, and folders, that import a library; each must."""
NOWHERE_IN = {"gliner_bento/engine/base.py": {"torch", "gliner", "gliclass", "transformers", "peft"}}
VIEWS = {
    SchedulerConfig: ("gliner_bento/scheduler/",),
    EngineOptions: ("gliner_bento/engine/",),
    AdapterSettings: ("gliner_bento/adapters/",),
    GatewayOptions: ("gliner_bento/gateway/", "gliner_bento/tasks/"),
    FleetOptions: ("gliner_bento/replicas/fleet/",),
}
OF_FORMATS = {name: import_module(f"gliner_bento.gateway.compat.{name}").Options for name in FIELDS}
STANDS_ALONE = {
    **{
        f"gliner_bento/tasks/{name}.py": {"pydantic", "typing_extensions", "gliner_bento"}
        for name in ("base", "extraction", "fields", "labels", "requests")
    },
    "gliner_bento/errors.py": {"pydantic"},
    "gliner_bento/settings/settings.py": {"pydantic", "pydantic_settings", "gliner_bento", "_typeshed"},
    "gliner_bento/settings/configuration.py": {"yaml"},
}


@functools.cache
def text(path: str) -> str:
    return (PROJECT_ROOT / path).read_text(encoding="utf-8")


class Contents(NamedTuple):
    """imported: top-level names of all modules that a file imports, lazily or not. attributes: each that it reads,
    after the name before its dot (`self._limits.x`: "_limits", "x")."""

    docstring: str | None
    imported: frozenset[str]
    attributes: frozenset[tuple[str, str]]


@functools.cache
def contents(path: str) -> Contents:
    """Of a file. Its syntax tree is not kept: collecting garbage would take longer with each."""
    tree = ast.parse(text(path))
    nodes = list(ast.walk(tree))
    return Contents(ast.get_docstring(tree), frozenset(_imported(nodes)), frozenset(_attributes_read(nodes)))


def imported(path: str) -> frozenset[str]:
    return contents(path).imported


def _imported(nodes: Sequence[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.partition(".")[0]


def _attributes_read(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            owner = node.value
            yield getattr(owner, "attr", getattr(owner, "id", "")), node.attr


def loaded_by(statements: Sequence[str], libraries: set[str]) -> dict[str, str]:
    """Which of the libraries each statement loads first, one after the other in a fresh interpreter."""
    code = """import sys
_, libraries, *statements = sys.argv
left = set(libraries.split())
for statement in statements:
    exec(statement)
    for library in left & set(sys.modules):
        left.remove(library)
        print(f"{library}\t{statement}")"""
    command = [sys.executable, "-c", code, " ".join(libraries), *statements]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, cwd=PROJECT_ROOT)
    return dict(line.split("\t") for line in ended.stdout.splitlines())


def test_a_library_is_imported_only_where_it_belongs():
    importers = {package: {path for path in SOURCES if package in imported(path)} for package in ALLOWED_IN}
    for package, allowed in ALLOWED_IN.items():
        assert [path for path in importers[package] if not path.startswith(allowed)] == [], package
        stale = [place for place in allowed if not any(path.startswith(place) for path in importers[package])]
        assert stale == [], f"nothing there imports {package}"
    assert [path for path, libraries in NOWHERE_IN.items() if libraries & imported(path)] == []


def test_no_files_import_each_other_in_a_circle():
    """import-linter compares folders; those of the engine are layers of one model."""
    graph = grimp.build_graph("gliner_bento", cache_dir=None)
    TopologicalSorter({module: graph.find_modules_directly_imported_by(module) for module in graph.modules}).prepare()


def test_what_is_shipped_imports_nothing_that_is_not():
    shipped = [path for path in SOURCES if path == "service.py" or path.startswith(("gliner_bento/", "runners/"))]
    assert len(shipped) > 100
    assert not [path for path in shipped if {"benchmark", "reliability", "training", "models"} & imported(path)]


@pytest.mark.parametrize("path", STANDS_ALONE)
def test_types_settings_and_errors_import_little(path):
    assert imported(path) - set(sys.stdlib_module_names) <= STANDS_ALONE[path]


def test_only_monotonic_clocks_decide():
    """The clock of the day may jump; it is shown, and orders nothing."""
    shown_in = {
        f"gliner_bento/{name}.py"
        for name in ("adapters/cache", "gateway/models", "gateway/shared_routes", "gateway/status", "telemetry/otel")
    }
    assert {path for path in SOURCES if re.search(r"\btime\.time\(|datetime\.now\(", text(path))} == shown_in


def test_only_the_command_line_reads_argv():
    assert [path for path in SOURCES if "sys.argv" in text(path)] == [
        "gliner_bento/cli/flags.py",
        "gliner_bento/serve/__main__.py",
    ]


def test_every_module_says_what_it_owns():
    assert not [path for path in SOURCES if text(path).strip() and not contents(path).docstring]


def test_importing_these_loads_no_torch():
    modules = ["client", "documents.process", "engine.base", "loadtest.measure", "scheduler.scheduler"]
    imports = [*(f"import gliner_bento.{module}" for module in modules), "import service"]
    assert loaded_by(imports, {"torch", "transformers", "gliner", "peft"}) == {}


def test_importing_these_loads_no_bentoml_and_a_server_without_tracing_no_library_for_it():
    modules = ["engine.base", "client", "replicas.http.client", "gateway.app", "asgi", "host.models"]
    start = "from gliner_bento.settings import Settings; from gliner_bento.telemetry.tracing import start_tracing"
    imports = [
        *(f"import gliner_bento.{module}" for module in modules),
        f"{start}; assert not start_tracing(Settings())",
    ]
    assert loaded_by(imports, {"bentoml", "opentelemetry"}) == {}
    assert loaded_by(["import json", "import gliner_bento.telemetry.otel"], {"bentoml", "opentelemetry"}) == {
        "opentelemetry": "import gliner_bento.telemetry.otel"
    }


def test_tracing_without_its_packages_ends_the_start_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "gliner_bento.telemetry.otel", None)
    with pytest.raises(StartupError, match=r"install the extra otel: "):
        start_tracing(Settings(enable_tracing=True))


def test_the_generated_pages_are_fresh():
    assert pages.main(check=True) == 0, "run `make docs`"


def test_every_setting_is_read_somewhere():
    """By its name, or as a field of a view that is read in the view's package."""
    consumers = [path for path in SOURCES if not re.match(r"gliner_bento/(settings|cli)/", path)]
    read = {name for path in consumers for owner, name in contents(path).attributes if owner == "settings"}
    of_formats = {view: (f"gliner_bento/gateway/compat/{name}.py",) for name, view in OF_FORMATS.items()}
    for view, packages in (VIEWS | of_formats).items():
        inside = [path for path in consumers if path.startswith(packages)]
        assert all(any(path.startswith(package) for path in inside) for package in packages), f"stale: {packages}"
        of_view = {name for path in inside for _, name in contents(path).attributes}
        fields = {field.name for field in dataclasses.fields(view)}
        assert fields <= of_view, f"{view.__name__}: never read: {fields - of_view}"
        read |= fields
    assert set(Settings.model_fields) - read == {"config"}


def test_the_lock_holds_exact_versions_of_what_serves_and_tests_and_no_place_to_fetch_them_from():
    files = [PROJECT_ROOT / name for name in ("requirements.lock", "requirements-dev.lock")]
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    pins = [line for line in lines if line and not line.startswith(("#", "-r "))]
    assert [pin for pin in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*( ; [^@/]+)?", pin)] == []
    locked = {_normal(pin.partition("==")[0]) for pin in pins}
    project = pytest.importorskip("tomllib").loads((PROJECT_ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    wanted = [
        *project["dependencies"],
        *(name for extra in ("serve", "dev", "onnx") for name in project["optional-dependencies"][extra]),
    ]
    of_the_checkout = {"gliner-bento-demo"}  # the folder models
    assert {_normal(re.match(r"[\w.-]+", name)[0]) for name in wanted} - locked == of_the_checkout
    assert not any(name.startswith(("nvidia-", "triton")) and name != "nvidia-ml-py" for name in locked)


def test_serving_imports_no_package_that_only_developers_have():
    """Each import of an installed package is in requirements.lock or in an extra for users."""
    lines = (PROJECT_ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    users = {_normal(line.partition("==")[0]) for line in lines if "==" in line}
    project = pytest.importorskip("tomllib").loads((PROJECT_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for extra, names in project["project"]["optional-dependencies"].items():
        users |= {_normal(re.match(r"[\w.-]+", name)[0]) for name in names if extra not in ("bench", "dev")}
    installs = importlib.metadata.packages_distributions()
    for_users = {module for module, packages in installs.items() if users & set(map(_normal, packages))}
    shipped = [path for path in SOURCES if path == "service.py" or path.startswith(("gliner_bento/", "runners/"))]
    third_party = installs.keys() - {"gliner_bento", "runners", "service"}
    assert {f"{path}: {name}" for path in shipped for name in imported(path) & third_party - for_users} == set()


def test_a_server_can_read_sentencepiece_tokenizers():
    """transformers needs both packages for the tokenizers of DeBERTa v3 and mT5; gliner declares only the first."""
    locked = (PROJECT_ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert re.search("^sentencepiece==", locked, re.MULTILINE)
    assert re.search("^protobuf==", locked, re.MULTILINE)


def test_every_word_splitter_has_an_extra():
    project = pytest.importorskip("tomllib").loads((PROJECT_ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    others = {"bench", "bulk", "completion", "dataframes", "dev", "documents"}
    others |= {"gliclass", "graph", "haystack", "mcp", "onnx", "otel", "ray", "redis", "serve"}
    assert set(project["optional-dependencies"]) - others == set(WORD_SPLITTERS) - {"whitespace"}


def test_the_map_of_packages_has_each_of_them():
    _, packages, _ = re.split(r"\n## (?:Packages|Words)\n", (PROJECT_ROOT / "docs/architecture.md").read_text("utf-8"))
    there = {
        f"{path.name}/" if path.is_dir() else path.name
        for path in PACKAGE.iterdir()
        if not path.name.startswith(("_", "py."))
    }
    assert there - set(re.findall(r"`([\w./]+)`", packages)) == set()


def test_pages_name_only_tests_that_exist():
    pages = [PROJECT_ROOT / "CONTRIBUTING.md", *(PROJECT_ROOT / "docs").rglob("*.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    tests = "".join(file.read_text(encoding="utf-8") for file in (PROJECT_ROOT / "tests").rglob("test_*.py"))
    assert {name for name in re.findall(r"`(test_\w+)`", text) if f"def {name}(" not in tests} == set()
    files = set(re.findall(r"`(tests/[\w/.]+)`", text))
    assert files
    assert [file for file in files if not (PROJECT_ROOT / file).exists()] == []


def test_other_examples_are_searched_for_also_in_ci_and_with_other_arguments():
    command = ["make", "--dry-run", "--no-print-directory", "test-all", "ARGS=-x"]
    lines = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    runs = [line for line in lines if " -m pytest " in line]
    assert len(runs) == 2
    assert all("-x --hypothesis-profile searching" in line for line in runs)
    shown = "import conftest; one = conftest.settings.get_profile('searching'); print(one.derandomize, one.database)"
    searching = subprocess.run(
        [sys.executable, "-c", shown],
        cwd=PROJECT_ROOT / "tests",
        env=os.environ | {"CI": "true"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert searching.stdout.startswith("False DirectoryBasedExampleDatabase")


def test_no_tracked_file_names_a_machines_folder():
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if tracked.returncode:
        pytest.skip("not a git checkout")
    private = re.compile(rb"(?<![\w./-])/(root|home(?!/bentoml\b)|work|Users)/\w+|file:///\w+")
    found: dict[str, bytes] = {}
    for name in filter(None, tracked.stdout.split("\0")):
        path = PROJECT_ROOT / name
        if path.suffix not in (".safetensors", ".webp") and path.is_file() and path != Path(__file__):
            match = private.search(path.read_bytes())
            found |= {name: match[0]} if match else {}
    assert found == {}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
