"""The file of API keys: its format, what is refused, and that a change takes effect."""

from __future__ import annotations

import json
import os
import shutil

import pytest
import yaml

from gliner_bento import cli
from gliner_bento.settings import Settings, SettingsError
from gliner_bento.storage.api_keys import ApiKeys, hash_of, new_key, read_keys


def entry(name, key, **more):
    return {"name": name, "sha256": hash_of(key), **more}


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "keys.yaml"
    file.write_text(yaml.safe_dump([entry("a", "key-a"), entry("b", "key-b", scopes=["adapters"], tenant="t")]))
    return file


@pytest.mark.parametrize("dump", [json.dumps, yaml.safe_dump])
def test_keys_are_found_by_what_the_file_has_the_hash_of(dump, tmp_path):
    keys = [entry("a", "key-a"), entry("b", "key-b", scopes=["adapters", "extract"], tenant="t", weight=2)]
    (tmp_path / "keys").write_text(dump(keys))
    for source in (str(tmp_path / "keys"), dump(keys)):
        found = ApiKeys(source)
        assert (found.find("key-a").name, found.find("key-a").scopes) == ("a", {"extract"})
        assert (found.find("key-b").tenant, found.find("key-b").weight) == ("t", 2)
        assert [found.find(wrong) for wrong in ("key-c", "", hash_of("key-a"), "key-a\n")] == [None] * 4


def test_hashes_with_one_prefix_are_told_apart():
    keys = [f"k{number}" for number in range(2000)]
    by_prefix = {}
    for key in keys:
        by_prefix.setdefault(hash_of(key)[:4], []).append(key)
    alike = next(same for same in by_prefix.values() if len(same) > 1)
    found = ApiKeys(json.dumps([entry(key, key) for key in alike]))
    assert [found.find(key).name for key in alike] == alike


def test_a_new_key_is_long_and_never_the_same():
    assert len({new_key() for _ in range(100)}) == 100
    assert len(new_key()) >= 43


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "not a list"),
        ("{a", "not a list"),
        ("a: b", "not a list"),
        ("- {name: a}", "0.sha256: Field required"),
        ("- {name: a, sha256: secret}", "0.sha256: String should match"),
        (yaml.safe_dump([entry("a", "x", scopes=["all"])]), "0.scopes.0: Input should be"),
        (yaml.safe_dump([entry("a/b", "x")]), "0.name: String should match"),
        (yaml.safe_dump([entry("a", "x", extra=1)]), "0.extra: Extra inputs"),
        (yaml.safe_dump([entry("a", "x"), entry("a", "y")]), "two entries have the same name"),
        (yaml.safe_dump([entry("a", "x"), entry("b", "x")]), "two entries have the same sha256"),
    ],
)
def test_an_invalid_file_is_refused_and_its_content_not_shown(content, problem, tmp_path):
    (tmp_path / "keys").write_text(content)
    with pytest.raises(ValueError, match=problem) as refused:
        read_keys(str(tmp_path / "keys"))
    assert "secret" not in str(refused.value)
    with pytest.raises(SettingsError) as refused:
        Settings.load({"api_keys": str(tmp_path / "keys")})
    assert str(refused.value).startswith("api_keys: ")


def test_a_missing_file_is_refused():
    with pytest.raises(SettingsError, match=r"api_keys: .*no-such-file: No such file"):
        Settings.load({"api_keys": "no-such-file"})


def test_a_changed_file_counts_within_a_second_without_a_restart(file):
    now = [0.0]
    keys = ApiKeys(str(file), clock=lambda: now[0])
    file.write_text(yaml.safe_dump([entry("c", "key-c")]))
    assert keys.find("key-c") is None
    now[0] += 1
    assert (keys.find("key-c").name, keys.find("key-a")) == ("c", None)
    file.write_text("[]")
    now[0] += 1
    assert keys.find("key-c") is None


@pytest.mark.parametrize("damage", ["", "- {name: a}", None])
def test_a_damaged_file_leaves_the_keys_as_they_were(file, damage, caplog):
    now = [0.0]
    keys = ApiKeys(str(file), clock=lambda: now[0])
    file.unlink() if damage is None else file.write_text(damage)
    for _ in range(3):
        now[0] += 1
        assert keys.find("key-a").name == "a"
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1
    file.write_text(yaml.safe_dump([entry("c", "key-c")]))
    now[0] += 1
    assert keys.find("key-c").name == "c"


def test_a_secret_that_kubernetes_replaces_is_read_again(tmp_path):
    """The file is a link into `..data`, a link to a folder; an update replaces that link and deletes the old folder."""
    now = [0.0]
    _update_secret(tmp_path, "..2026_1", entry("a", "key-a"))
    (tmp_path / "keys.yaml").symlink_to("..data/keys.yaml")
    keys = ApiKeys(Settings.load({"api_keys": str(tmp_path / "keys.yaml")}).api_keys, clock=lambda: now[0])
    _update_secret(tmp_path, "..2026_2", entry("z", "key-z"))
    shutil.rmtree(tmp_path / "..2026_1")
    now[0] += 1
    assert (keys.find("key-a"), keys.find("key-z").name) == (None, "z")


def _update_secret(mount, folder, *entries):
    (mount / folder).mkdir()
    (mount / folder / "keys.yaml").write_text(yaml.safe_dump(list(entries)))
    (mount / "..data_tmp").symlink_to(folder)
    os.replace(mount / "..data_tmp", mount / "..data")


def test_the_command_makes_an_entry_and_shows_its_key_once(capsys):
    assert cli.main(["keys", "new", "team-a", "--scopes", "extract,adapters", "--tenant", "t"]) == 0
    written = capsys.readouterr()
    key = written.err.strip().rpartition(" ")[2]
    found = ApiKeys(written.out).find(key)
    assert (found.name, found.scopes, found.tenant) == ("team-a", {"extract", "adapters"}, "t")
    assert key not in written.out


@pytest.mark.parametrize("arguments", [["a/b"], ["a", "--scopes", "all"], ["a", "--tenant", "x y"]])
def test_the_command_refuses_what_the_file_could_not_have(arguments, capsys):
    assert cli.main(["keys", "new", *arguments]) == 1
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.startswith("gliner-bento: keys: ")
    assert written.err.count("\n") == 1


def test_the_file_is_found_by_workers_in_another_folder(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    monkeypatch.setenv("GLINER_API_KEYS", "keys.yaml")
    assert Settings.load().api_keys == str(file)
