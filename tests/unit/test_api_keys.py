"""The file of API keys: its format, what is refused, and that a change takes effect."""

from __future__ import annotations

import json
import os
import re
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


def test_a_key_may_have_lists():
    lists = {"allow_list": ["Ada"], "deny_list": [{"pattern": "a+", "label": "code"}]}
    (key,) = read_keys(json.dumps([entry("a", "key-a", **lists)]))
    assert [(one.text, one.is_pattern, one.label) for one in (*key.lists.allow, *key.lists.deny)] == [
        ("Ada", False, "sensitive"),
        ("a+", True, "code"),
    ]
    assert key.lists is key.lists, "its values are made ready once"


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ({"allow_list": "Ada"}, r"0\.allow_list: "),
        ({"allow_list": ["Ada", {"value": ""}]}, r"0\.allow_list\.1\.value: "),
        ({"deny_list": {"code": [{"pattern": "("}]}}, r"deny_list\.code\.0\.pattern: missing \)"),
        ({"deny_list": [{"pattern": "(?R)"}]}, r"deny_list\.0\.pattern: recursion"),
    ],
)
def test_wrong_lists_of_a_key_are_named(lists, message):
    with pytest.raises(ValueError, match=message):
        read_keys(json.dumps([entry("a", "key-a", **lists)]))


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
        ("[" * 1000, "not a list"),
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


def test_a_replaced_file_counts_within_a_second_without_a_restart(file):
    now = [0.0]
    keys = ApiKeys(str(file), clock=lambda: now[0])
    for content in (yaml.safe_dump([entry("c", "key-c")]), file.read_text(), "[]"):
        (file.parent / "new").write_text(content)
        os.replace(file.parent / "new", file)
        now[0] += 1
        found = {key for key in "abc" if keys.find(f"key-{key}")}
        assert found == {one["name"] for one in yaml.safe_load(content)}


def test_a_file_that_is_written_in_place_counts_once_it_is_no_longer_written(file):
    now = [0.0]
    keys = ApiKeys(str(file), clock=lambda: now[0])
    whole = yaml.safe_dump([entry(name, f"key-{name}", scopes=["adapters"], weight=2) for name in "xyz"])
    for written in range(0, len(whole), 20):
        file.write_text(whole[:written])
        now[0] += 1
        assert {key for key in "abxyz" if keys.find(f"key-{key}")} == {"a", "b"}, whole[:written]
    file.write_text(whole)
    now[0] += 1
    assert keys.find("key-x") is None
    now[0] += 1
    assert {key for key in "abxyz" if keys.find(f"key-{key}")} == {"x", "y", "z"}


LIMITED = yaml.safe_dump([entry(name, f"key-{name}", scopes=["metrics"], weight=2) for name in "abc"], sort_keys=False)


def found_after(file, seconds: int) -> set[str]:
    """The keys that are valid so long after the file, which had LIMITED, got its content now."""
    now, content = [0.0], file.read_text()
    file.write_text(LIMITED)
    keys = ApiKeys(str(file), clock=lambda: now[0])
    file.write_text(content)
    for _ in range(seconds):
        now[0] += 1
        found = {key.name for name in "abc" if (key := keys.find(f"key-{name}"))}
        assert all(keys.find(f"key-{name}").scopes == {"metrics"} for name in found)
    return found


@pytest.mark.parametrize("length", range(0, len(LIMITED), 7))
def test_a_file_that_lost_its_end_is_not_taken_and_never_gives_a_key_more_than_it_had(file, length, caplog):
    file.write_text(LIMITED[:length])
    assert found_after(file, 55) == {"a", "b", "c"}
    assert len(caplog.records) == 1
    assert re.search(r"lost its end.*renaming|invalid; the previous keys stay valid", caplog.text)


def test_entries_that_were_deleted_at_the_end_are_no_keys_a_minute_later(file, caplog):
    file.write_text(yaml.safe_dump(yaml.safe_load(LIMITED)[:2], sort_keys=False))
    assert LIMITED.startswith(file.read_text())
    assert found_after(file, 55) == {"a", "b", "c"}
    assert found_after(file, 62) == {"a", "b"}


def test_an_entry_that_lost_its_end_is_never_taken(file, caplog):
    file.write_text(LIMITED.rpartition("  scopes:")[0])
    assert found_after(file, 100) == {"a", "b", "c"}
    assert "the end of the entry was lost" in caplog.text
    file.write_text(LIMITED.replace("\n  weight: 2\n", "\n  weight: 3\n").rstrip("\n"))
    assert found_after(file, 100) == {"a", "b", "c"}
    assert "does not end with a line end" in caplog.text


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
    for _ in range(2):
        now[0] += 1
        keys.find("key-c")
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
