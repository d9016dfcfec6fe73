"""Sources of adapters. The hub is a server in the test, which huggingface_hub calls in a process of its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub import HubServer, hub_environment, hub_server

from gliner_bento.adapters.archive import CONFIG_FILE, FILES, WEIGHTS_FILE
from gliner_bento.adapters.sources import from_archive, from_folder, from_hub
from gliner_bento.errors import AdapterInvalid, AdapterNotFound, InvalidField, TooLarge

pytestmark = pytest.mark.long


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """A folder to copy from."""
    folder = tmp_path / "there"
    folder.mkdir()
    (folder / CONFIG_FILE).write_text("{}")
    (folder / WEIGHTS_FILE).write_text("weights")
    (folder / "README.md").write_text("more")
    return folder


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder to copy into."""
    folder = tmp_path / "here"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(("max_bytes", "fits"), [(9, True), (8, False)])
def test_an_archive_is_unpacked_within_the_limit(tmp_path, there, here, max_bytes, fits):
    with zipfile.ZipFile(tmp_path / "upload", "w") as archive:
        for name in FILES:
            archive.write(there / name, f"adapter/{name}")
    fill = from_archive(tmp_path / "upload", max_bytes)
    if fits:
        fill(here)
        assert (here / WEIGHTS_FILE).read_text() == "weights"
    else:
        with pytest.raises(TooLarge):
            fill(here)


def test_of_a_folder_two_files_are_copied(there, here):
    from_folder(there, 9)(here)
    assert {path.name: path.read_text() for path in here.iterdir()} == {CONFIG_FILE: "{}", WEIGHTS_FILE: "weights"}


def test_a_folder_is_limited(there, here):
    with pytest.raises(TooLarge, match="more than 8 bytes"):
        from_folder(there, 8)(here)


@pytest.mark.parametrize("name", FILES)
def test_a_link_out_of_a_folder_is_not_followed(tmp_path, there, here, name):
    (there / name).rename(tmp_path / "elsewhere")
    (there / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AdapterInvalid, match=f"{name} is a link to outside its folder"):
        from_folder(there, 100)(here)
    assert os.listdir(here) == []


def test_a_link_within_a_folder_is(tmp_path, there, here):
    (there / "blobs").mkdir()
    (there / WEIGHTS_FILE).rename(there / "blobs" / "1")
    (there / WEIGHTS_FILE).symlink_to("blobs/1")
    (tmp_path / "link").symlink_to(there)
    from_folder(tmp_path / "link", 100)(here)
    assert (here / WEIGHTS_FILE).read_text() == "weights"
    assert not (here / WEIGHTS_FILE).is_symlink()


@pytest.mark.parametrize("name", FILES)
def test_a_folder_without_one_of_the_files_is_refused(there, here, name):
    (there / name).unlink()
    with pytest.raises(AdapterInvalid, match=f"there is no {name}"):
        from_folder(there, 100)(here)


@pytest.mark.parametrize("repo_id", ["a/b/c", "", "../x", "-a", "a b"])
def test_an_invalid_repository_id_is_refused(here, repo_id):
    with pytest.raises(InvalidField, match="not a repository id"):
        from_hub(repo_id, None, 100)(here)


def test_offline_a_repository_that_was_not_downloaded_is_not_found(here):
    """Tests run with HF_HUB_OFFLINE."""
    with pytest.raises(AdapterNotFound, match=r"'one/name@v1' has not been downloaded before"):
        from_hub("one/name", "v1", 100)(here)


BOTH_SMALL = {CONFIG_FILE: b"{}", WEIGHTS_FILE: b"weights", "README.md": b"not wanted"}
REPOSITORIES = {
    "one/good": BOTH_SMALL,
    "one/large": BOTH_SMALL | {WEIGHTS_FILE: b"w" * 1000},
    "one/pickled": {CONFIG_FILE: b"{}", "adapter_model.bin": b"evil"},
    "one/broken": BOTH_SMALL,
}


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with hub_server(REPOSITORIES) as server:
        yield server


def downloaded(tmp_path: Path, endpoint: str, *names: str, offline: bool = False) -> list[list]:
    """The output of `download_program.py` for each repository; downloads are kept for the next call."""
    run = subprocess.run(
        [sys.executable, Path(__file__).parent / "download_program.py", tmp_path / "cache", "100", *names],
        capture_output=True,
        text=True,
        check=True,
        env=hub_environment(endpoint, tmp_path / "huggingface", offline=offline),
    )
    return [json.loads(line) for line in run.stdout.splitlines()]


def test_adapters_of_a_hub(tmp_path, hub):
    endpoint = hub.endpoint
    names = ["one/good", "one/good@v1", "one/good@v2", "one/none", "one/large", "one/pickled"]
    good, tagged, no_revision, none, large, pickled = downloaded(tmp_path, endpoint, *names)
    assert good == tagged == ["weights"]
    assert no_revision == [
        "adapter_not_found",
        "adapter: 'one/good@v2' does not exist on the hub, or is not accessible",
    ]
    assert none == ["adapter_not_found", "adapter: 'one/none' does not exist on the hub, or is not accessible"]
    assert large == ["too_large", "adapter: its files have more than 100 bytes"]
    assert pickled[0] == "adapter_invalid"
    assert "'adapter_model.bin' is never unpickled" in pickled[1]
    files = {line.rpartition("/")[2] for line in hub.requests if "/resolve/" in line}
    assert files == set(FILES)
    assert not any("large/resolve" in line or "pickled/resolve" in line for line in hub.requests)
    assert downloaded(tmp_path, endpoint, "one/good", offline=True) == [["weights"]]


def test_an_unreachable_hub_is_not_a_missing_adapter(tmp_path, hub):
    endpoint = hub.endpoint
    failed = "adapter: 'one/broken' cannot be downloaded; the server's log has the details"
    assert downloaded(tmp_path, endpoint, "one/good", "one/broken") == [["weights"], ["internal", failed]]
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        endpoint = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        good, other = downloaded(tmp_path, endpoint, "one/good", "one/other")
    assert good == ["weights"]
    assert other == ["internal", failed.replace("broken", "other")]
