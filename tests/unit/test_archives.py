"""A model in an archive: unpacked once, within limits, and never outside its folder."""

from __future__ import annotations

import io
import tarfile
import zipfile

import pytest

from gliner_bento.engine.checkpoint.archive import name_of, unpacked
from gliner_bento.engine.checkpoint.find import ModelError
from gliner_bento.settings import Settings, SettingsError

FILES = {"gliner_config.json": b"{}", "labels_tokenizer/tokenizer.json": b"{}", "model.safetensors": bytes(10_000)}


def zipped(path, files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def tarred(path, files, *others):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for member in others:
            archive.addfile(member)
    return path


def content_of(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize(("make", "name"), [(zipped, "one.zip"), (tarred, "one.tar.gz"), (tarred, "one.tgz")])
@pytest.mark.parametrize("folder", ["", "inside/"])
def test_the_files_are_at_the_top_or_in_one_folder(tmp_path, make, name, folder):
    archive = make(tmp_path / name, {f"{folder}{path}": content for path, content in FILES.items()})
    assert content_of(unpacked(archive, tmp_path / "cache")) == FILES
    assert name_of(archive) == "one"
    assert Settings.load({"model": str(archive)}).model == str(archive)


def test_an_archive_is_unpacked_once_and_again_when_it_changes(tmp_path):
    archive = zipped(tmp_path / "one.zip", FILES)
    first = unpacked(archive, tmp_path / "cache")
    (first / "model.safetensors").write_bytes(b"marked")
    assert content_of(unpacked(archive, tmp_path / "cache"))["model.safetensors"] == b"marked"
    zipped(archive, {"gliner_config.json": b"new"})
    assert content_of(unpacked(archive, tmp_path / "cache")) == {"gliner_config.json": b"new"}
    assert not first.exists()


LINK = tarfile.TarInfo("link")
LINK.type, LINK.linkname = tarfile.SYMTYPE, "/etc/passwd"


@pytest.mark.parametrize(
    ("files", "others", "message"),
    [
        ({"../outside": b""}, [], "not a path inside it"),
        ({"/outside": b""}, [], "not a path inside it"),
        ({"a/" * 1000 + "x": b""}, [], "in more than 32 folders"),
        ({}, [LINK], "neither a plain file nor a folder"),
        ({"zeros": bytes(50 * 2**20)}, [], "200 times its size"),
        ({f"{number}": b"" for number in range(1001)}, [], "(more than 1000 entries|headers are too large)"),
    ],
)
def test_an_unsafe_archive_is_refused_and_leaves_nothing(tmp_path, files, others, message):
    archive = tarred(tmp_path / "one.tar.gz", files, *others)
    with pytest.raises(ModelError, match=message):
        unpacked(archive, tmp_path / "cache")
    assert [file.name for file in (tmp_path / "cache" / "archives").iterdir()] == ["lock"]
    assert not (tmp_path / "outside").exists()


def test_what_is_no_archive_and_what_does_not_exist_are_refused(tmp_path):
    (tmp_path / "one.zip").write_bytes(b"text")
    with pytest.raises(ModelError, match="neither zip nor tar"):
        unpacked(tmp_path / "one.zip", tmp_path / "cache")
    with pytest.raises(SettingsError, match=r"model: no such archive \(got 'none\.zip'"):
        Settings.load({"model": "none.zip"})


def test_a_cache_that_cannot_be_written_is_named(tmp_path):
    archive = zipped(tmp_path / "one.zip", FILES)
    (tmp_path / "cache").touch()
    with pytest.raises(ModelError, match="cannot be unpacked in"):
        unpacked(archive, tmp_path / "cache")
