"""The disk tier: adapters in the operator's folder."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from disk_store import filled, folder_in, ids, in_cache, install, store_in

from gliner_bento.adapters.archive import CONFIG_FILE, FILES
from gliner_bento.errors import AdapterNotFound, Conflict


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


@pytest.mark.parametrize("name", FILES)
def test_the_operators_adapter_changes_its_version_with_its_content(cache, root, name):
    folder = folder_in(root, "mine")
    filled()(folder)
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
