"""The disk tier: what is installed, found, checked, pinned, removed and evicted."""

from __future__ import annotations

import errno
import logging
import os
from hashlib import sha256
from pathlib import Path

import pytest
from disk_store import BASE, filled, folder_in, ids, in_cache, install, store_in

from gliner_bento.adapters.archive import CONFIG_FILE, FILES, SOURCE_FILES, WEIGHTS_FILE
from gliner_bento.errors import AdapterInvalid, AdapterNotFound, Conflict, InvalidField, StorageFull, TooLarge
from gliner_bento.tasks.base import BASE_ADAPTER_ID

GOOD_IDS = ["a", "A.b-c_9", "__base", "a" * 128]
BAD_IDS = ["", ".", "..", ".hidden", BASE_ADAPTER_ID, "a/b", "a\\b", "a\n", "é", "a" * 129, "\0", "a b"]


def test_what_is_installed_is_found(store, cache):
    stored = install(store, "a", filled("weights"), source="hub")
    assert store.find("a") == stored
    assert stored.adapter_id == "a"
    assert (stored.source, stored.size_bytes, stored.pinned) == ("hub", 9, False)
    assert store.verified(stored) == stored.folder == cache / BASE / "adapters" / "a"
    assert (stored.folder / WEIGHTS_FILE).read_text() == "weights"
    assert in_cache(cache) == ["a"]


def test_a_version_depends_only_on_the_content(store, tmp_path):
    version = install(store, "a").version
    assert install(store, "b", source="hub").version == version
    assert install(store_in(tmp_path / "other")).version == version
    assert install(store, "c", filled("weights", "{ }")).version != version
    assert install(store, "d", filled("{}", "weights")).version != version


def test_nothing_is_made_by_looking(store, cache):
    with pytest.raises(AdapterNotFound) as raised:
        store.find("a")
    assert raised.value.param == "adapter_id"
    assert store.all() == []
    assert not store.remove("a")
    assert not cache.exists()


@pytest.mark.parametrize("adapter_id", GOOD_IDS)
def test_ids_that_are_taken(store, adapter_id):
    install(store, adapter_id)
    assert ids(store) == [adapter_id]


@pytest.mark.parametrize("adapter_id", BAD_IDS)
def test_what_is_no_id_is_refused_by_every_method(store, cache, adapter_id):
    for call in (
        store.check_id,
        store.find,
        store.remove,
        lambda adapter_id: store.set_pinned(adapter_id, True),
        lambda adapter_id: install(store, adapter_id),
    ):
        with pytest.raises(InvalidField) as raised:
            call(adapter_id)
        assert raised.value.param == "adapter_id"
    assert not (cache / BASE / "adapters").exists() or in_cache(cache) == []


@pytest.mark.parametrize("adapter_id", [*BAD_IDS[:7], "\0", "\ud800", "é" * 101, "\n"])
def test_what_is_no_name_of_a_folder_is_refused_whatever_the_pattern_says(cache, adapter_id):
    with pytest.raises(InvalidField):
        store_in(cache, pattern="(?s).*").check_id(adapter_id)


def test_installing_is_idempotent(store, cache):
    stored = install(store)
    before = [os.stat(stored.folder / name) for name in FILES]
    assert install(store, source="hub") == stored
    assert [os.stat(stored.folder / name) for name in FILES] == before
    assert in_cache(cache) == ["a"]


def test_other_content_is_a_conflict_and_the_old_one_stays(store, cache):
    stored = install(store, pinned=True)
    with pytest.raises(Conflict):
        install(store, "a", filled("others"))
    assert store.find("a") == stored
    assert store.verified(stored)
    assert in_cache(cache) == ["a"]


@pytest.mark.parametrize(("name", "fill"), [(WEIGHTS_FILE, filled("others")), (CONFIG_FILE, filled(config="{ }"))])
def test_a_conflict_names_the_file_that_differs_and_does_not_advise_deletion(store, tmp_path, name, fill):
    stored = install(store)
    fill(tmp_path)
    old, new = (sha256((folder / name).read_bytes()).hexdigest() for folder in (stored.folder, tmp_path))
    with pytest.raises(Conflict) as raised:
        install(store, "a", fill)
    assert f"({name} has sha256 {old}, not {new})" in raised.value.message
    assert "choose another id, or send replace=true" in raised.value.message
    assert "delete" not in raised.value.message


def test_replacing_takes_the_new_content_and_keeps_the_pin(store, cache):
    old = install(store, pinned=True)
    new = install(store, "a", filled("others"), replace=True)
    assert new == store.find("a")
    assert (new.version == old.version, new.pinned) == (False, True)
    assert (store.verified(new) / WEIGHTS_FILE).read_text() == "others"
    assert install(store, "a", filled("others"), replace=True) == new
    assert install(store, "b", replace=True).version == old.version
    assert in_cache(cache) == ["a", "b"]


def test_stores_of_different_base_models_do_not_see_each_other(cache):
    one, other = store_in(cache, base="one", most=2), store_in(cache, base="other", most=2)
    ours = install(one, "a", filled("one"), source="hub", pinned=True)
    theirs = install(other, "a", filled("other"))
    assert ours.version != theirs.version
    assert (one.all(), other.all()) == ([ours], [theirs])
    install(one, "b", source="hub")
    install(one, "c")
    assert (ids(one), ids(other)) == (["a", "c"], ["a"]), "evicted for `c`: of the same base model"
    install(other, "d")
    with pytest.raises(StorageFull):
        install(other, "e")
    assert other.remove("a")
    assert one.verified(one.find("a"))
    assert one.find("a") == ours
    assert ids(other) == ["d"]


def test_a_store_of_an_earlier_version_is_not_served_and_its_folder_is_logged(cache, caplog):
    unattributed = cache / "adapters" / "a"
    unattributed.mkdir(parents=True)
    filled()(unattributed)
    store = store_in(cache)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"the adapters in {cache / 'adapters'} are not served" in caplog.text
    assert store.all() == []
    assert install(store, "a", filled("others"))
    assert sorted(os.listdir(unattributed)) == sorted(FILES)


def test_an_adapter_that_fails_the_check_is_not_installed(store, cache):
    def check(folder: Path) -> None:
        assert sorted(os.listdir(folder)) == sorted(FILES)
        raise AdapterInvalid("no adapter")

    with pytest.raises(AdapterInvalid, match="no adapter"):
        install(store, check=check)
    assert in_cache(cache) == []


@pytest.mark.parametrize("error", [RuntimeError("?"), KeyboardInterrupt(), OSError(errno.ENXIO, "broken")])
def test_a_fill_that_fails_leaves_nothing(store, cache, error):
    def fill(folder: Path) -> None:
        (folder / CONFIG_FILE).write_text("{}")
        raise error

    with pytest.raises(type(error)) as raised:
        install(store, "a", fill)
    assert raised.value is error
    assert in_cache(cache) == []


@pytest.mark.parametrize("missing", FILES)
def test_a_fill_of_less_than_two_files_is_refused(store, cache, missing):
    def fill(folder: Path) -> None:
        filled()(folder)
        (folder / missing).unlink()

    with pytest.raises(AdapterInvalid, match=missing):
        install(store, "a", fill)
    assert in_cache(cache) == []


def test_files_beyond_the_limit_are_refused(cache):
    assert install(store_in(cache, max_bytes=9))
    with pytest.raises(TooLarge):
        install(store_in(cache, max_bytes=8), "b")
    assert in_cache(cache) == ["a"]


def test_other_processes_see_changes_immediately(cache):
    ours, theirs = store_in(cache), store_in(cache)
    first = install(ours)
    assert theirs.find("a") == first
    ours.set_pinned("a", True)
    assert theirs.find("a").pinned
    assert theirs.all()[0].pinned
    ours.remove("a")
    with pytest.raises(AdapterNotFound):
        theirs.find("a")
    second = install(ours, "a", filled("WEIGHTS"))
    assert second.size_bytes == first.size_bytes
    assert theirs.find("a") == second != first


def test_pinning(store):
    install(store)
    assert store.set_pinned("a", True) == store.find("a")
    assert store.find("a").pinned
    assert store.set_pinned("a", True).pinned
    assert not store.set_pinned("a", False).pinned
    assert not store.set_pinned("a", False).pinned
    with pytest.raises(AdapterNotFound):
        store.set_pinned("b", True)


def test_installing_pins_and_never_unpins(store):
    assert install(store, pinned=True).pinned
    assert install(store).pinned
    assert not install(store, "b").pinned
    assert install(store, "b", pinned=True).pinned


def test_a_pin_is_removed_with_its_adapter(cache, root):
    store = store_in(cache, root)
    install(store, pinned=True)
    store.remove("a")
    assert not install(store).pinned
    install(store, pinned=True)
    store.remove("a")
    filled()(folder_in(root, "a"))
    assert not store.find("a").pinned


def test_removing(store, cache):
    install(store)
    install(store, "b", filled("others"))
    assert store.remove("a")
    assert not store.remove("a")
    assert ids(store) == in_cache(cache) == ["b"]


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_is_detected_and_repaired_by_installing_again(store, cache, name):
    stored = install(store, pinned=True)
    content = bytearray((stored.folder / name).read_bytes())
    content[0] ^= 1
    (stored.folder / name).write_bytes(content)
    with pytest.raises(AdapterInvalid, match="damaged on disk"):
        store.verified(store.find("a"))
    assert install(store) == stored
    assert store.verified(stored)
    assert in_cache(cache) == ["a"]


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_detected(store, name):
    stored = install(store)
    (stored.folder / name).unlink()
    with pytest.raises(AdapterInvalid, match="damaged on disk"):
        store.verified(stored)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"source": "nowhere", "size_bytes": 1, "sha256": ["", ""]}'])
def test_a_damaged_manifest_is_detected_and_repaired(cache, content, caplog):
    stored = install(store_in(cache), pinned=True)
    install(store_in(cache), "b")
    (stored.folder / "manifest.json").write_text(content)
    store = store_in(cache)
    with pytest.raises(AdapterInvalid, match="damaged on disk"):
        store.find("a")
    with pytest.raises(AdapterInvalid, match="damaged on disk"):
        store.verified(stored)
    with caplog.at_level(logging.WARNING):
        assert ids(store) == ["b"]
    assert "adapter a is not listed" in caplog.text
    assert install(store, "a", filled("others")).pinned
    assert ids(store) == ["a", "b"]


def test_a_damaged_adapter_can_be_removed(store):
    (install(store).folder / "manifest.json").write_text("")
    assert store.remove("a")
    with pytest.raises(AdapterNotFound):
        store.find("a")


def test_a_folder_without_a_manifest_is_not_an_adapter_and_is_replaced(store, cache):
    (cache / BASE / "adapters" / "a").mkdir(parents=True)
    with pytest.raises(AdapterNotFound):
        store.find("a")
    assert store.verified(install(store))


def test_removal_and_replacement_are_distinguished_from_damage(store):
    stored = install(store)
    store.remove("a")
    with pytest.raises(AdapterNotFound):
        store.verified(stored)
    install(store, "a", filled("others"))
    with pytest.raises(AdapterNotFound, match="replaced"):
        store.verified(stored)


def test_the_least_recently_used_of_the_hub_is_evicted(cache):
    store = store_in(cache, most=4)
    for number, name in enumerate("abc"):
        os.utime(install(store, name, filled(name), source="hub").folder, (number, number))
    install(store, "upload", filled("upload"))
    store.set_pinned("b", True)
    store.touch(store.find("a"))
    install(store, "d", filled("d"))
    assert ids(store) == in_cache(cache) == ["a", "b", "d", "upload"]
    install(store, "e", filled("e"))
    assert ids(store) == ["b", "d", "e", "upload"]
    with pytest.raises(StorageFull, match="max_disk_adapters is 4"):
        install(store, "f", filled("f"), source="hub")
    assert ids(store) == in_cache(cache) == ["b", "d", "e", "upload"]
    assert install(store, "e", filled("e"))


def test_a_lower_limit_applies_at_the_next_install(cache):
    for name in "abcd":
        install(store_in(cache), name, source="hub")
    assert len(ids(store_in(cache, most=2))) == 4
    install(store_in(cache, most=2), "e")
    assert len(ids(store_in(cache))) == 2


def test_adapters_of_the_operator_do_not_count(cache, root):
    filled()(folder_in(root, "mine"))
    store = store_in(cache, root, most=1)
    install(store)
    assert ids(store) == ["a", "mine"]


def test_touching_a_removed_adapter_does_nothing(store):
    stored = install(store, source="hub")
    store.remove("a")
    store.touch(stored)


def test_touching_changes_no_version(store):
    stored = install(store, source="hub")
    store.touch(stored)
    assert store.find("a") == stored


def test_find_reads_no_file_twice(store):
    """It runs for every request. A manifest is not read again unless its stat has changed."""
    stored = install(store)
    manifest = stored.folder / "manifest.json"
    status = manifest.stat()
    manifest.write_text("?" * status.st_size)
    os.utime(manifest, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert store.find("a") == stored
    with pytest.raises(AdapterInvalid):
        store_in(store.cache_dir).find("a")


# The disk tier: adapters in the operator's folder


def test_the_operators_folders_are_adapters(cache, root):
    folder = folder_in(root, "mine")
    filled("weights")(folder)
    folder_in(root, "empty")
    (root / "README.md").write_text("not an adapter")
    store = store_in(cache, root)
    stored = store.find("mine")
    assert (stored.source, stored.folder, stored.size_bytes) == ("folder", folder, 9)
    assert store.verified(stored) == folder
    assert store.all() == [stored]
    for name in ("empty", "README.md"):
        with pytest.raises(AdapterNotFound):
            store.find(name)


@pytest.mark.parametrize("name", SOURCE_FILES)
def test_the_operators_adapter_changes_its_version_with_its_content(cache, root, name):
    folder = folder_in(root, "mine")
    filled()(folder)
    if name not in FILES:
        (folder / WEIGHTS_FILE).rename(folder / name)
    store = store_in(cache, root)
    before = store.find("mine")
    os.utime(folder / name, ns=(1, 1))
    after = store.find("mine")
    assert before.version != after.version
    (folder / name).write_text("of another size")
    os.utime(folder / name, ns=(1, 1))
    assert store.find("mine").version not in (before.version, after.version)


def test_the_operators_adapter_without_weights_is_found_for_the_check_to_refuse(cache, root):
    (folder_in(root, "mine") / CONFIG_FILE).write_text("{}")
    assert store_in(cache, root).find("mine").size_bytes == 2


def test_the_operators_adapter_is_pinned_without_writing_to_its_folder(cache, root):
    filled()(folder_in(root, "mine"))
    store = store_in(cache, root)
    assert store.set_pinned("mine", True).pinned
    assert store_in(cache, root).all()[0].pinned
    assert sorted(os.listdir(root / "mine")) == sorted(FILES)
    assert not store.set_pinned("mine", False).pinned


def test_the_operators_adapter_cannot_be_installed_or_removed(cache, root):
    filled()(folder_in(root, "mine"))
    store = store_in(cache, root)
    for call in (lambda: install(store, "mine"), lambda: store.remove("mine")):
        with pytest.raises(Conflict, match="comes from adapter_root; change or remove its folder there"):
            call()
    assert sorted(os.listdir(root / "mine")) == sorted(FILES)


def test_the_operators_adapter_has_precedence(cache, root):
    store = store_in(cache, root)
    installed = install(store, "mine")
    filled("others")(folder_in(root, "mine"))
    assert store.find("mine").source == "folder"
    assert [stored.source for stored in store.all()] == ["folder"]
    with pytest.raises(AdapterNotFound, match="replaced"):
        store.verified(installed)


def test_the_operators_adapter_that_comes_during_an_install_wins(cache, root):
    store = store_in(cache, root)

    def fill(folder: Path) -> None:
        filled()(folder)
        filled()(folder_in(root, "mine"))

    with pytest.raises(Conflict):
        install(store, "mine", fill)
    assert in_cache(cache) == []


def test_an_operators_folder_with_an_invalid_id_is_logged_at_start(cache, root, caplog):
    filled()(folder_in(root, "my adapter"))
    with caplog.at_level(logging.WARNING):
        store = store_in(cache, root)
    assert "'my adapter' is not a valid adapter id" in caplog.text
    assert store.all() == []


def test_an_unreadable_operators_folder_does_not_hide_the_others(cache, root, caplog):
    filled()(folder_in(root, "mine"))
    (root / "loop").symlink_to("loop")
    with caplog.at_level(logging.WARNING):
        assert ids(store_in(cache, root)) == ["mine"]
    assert "adapter loop is not listed" in caplog.text
