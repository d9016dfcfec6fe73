"""Valid and malicious archives, written with zipfile and tarfile, and damaged."""

from __future__ import annotations

import errno
import gzip
import io
import resource
import struct
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gliner_bento.adapters.archive import CONFIG_FILE, FILES, GLINER2_WEIGHTS_FILE, WEIGHTS_FILE, unpack
from gliner_bento.errors import AdapterInvalid, GLiNERBentoError, TooLarge

MIB = 2**20
CONFIG = b'{"peft_type": "LORA"}'
WEIGHTS = bytes(range(256)) * 10
BOTH = [(CONFIG_FILE, CONFIG), (WEIGHTS_FILE, WEIGHTS)]

Files = Sequence[tuple[str, bytes]]


def zipped(files: Files, **options: Any) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", **{"compression": zipfile.ZIP_DEFLATED} | options) as archive:
        for name, content in files:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of names that are there twice
                archive.writestr(name, content)
    return made.getvalue()


def member(name: str, content: bytes = b"", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def tarred(files: Sequence[tuple[str | tarfile.TarInfo, bytes]], mode: str = "w") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as archive:
        for name, content in files:
            info = member(name, content)[0] if isinstance(name, str) else name
            archive.addfile(info, io.BytesIO(content))
    return made.getvalue()


def tgz(files: Files) -> bytes:
    return tarred(files, "w:gz")


FORMATS = [zipped, tarred, tgz]
Pack = Callable[[Files], bytes]


@pytest.fixture
def unpacked(tmp_path: Path) -> Callable[..., dict[str, bytes]]:
    """The contents of the folder and of its parent after unpacking."""

    def run(content: bytes, *, max_bytes: int = MIB) -> dict[str, bytes]:
        (tmp_path / "archive").write_bytes(content)
        into = tmp_path / "into"
        into.mkdir()
        unpack(tmp_path / "archive", into, max_bytes=max_bytes)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["archive", "into"]
        return {path.name: path.read_bytes() for path in into.iterdir()}

    return run


@pytest.mark.parametrize("pack", FORMATS)
@pytest.mark.parametrize("prefix", ["", "./", "adapter/", "./checkpoint-100/", ".hidden/", "наш/"])
def test_the_two_files_are_unpacked_from_the_top_or_one_folder(unpacked, pack: Pack, prefix):
    others = [("README.md", b"x" * 100), ("checkpoint-7/optimizer.pt", b"y"), ("__MACOSX/._" + CONFIG_FILE, b"z")]
    files = [(prefix + name, content) for name, content in [*others[:1], *BOTH, *others[1:]]]
    assert unpacked(pack(files)) == dict(BOTH)


def test_folders_have_entries_of_their_own(unpacked):
    folder = member("adapter", type=tarfile.DIRTYPE)
    assert unpacked(tarred([folder, *[(f"adapter/{name}", content) for name, content in BOTH]])) == dict(BOTH)


def test_a_zip_of_folders_and_files_that_are_stored(unpacked):
    files = [("adapter/", b""), *[(f"adapter/{name}", content) for name, content in BOTH]]
    assert unpacked(zipped(files, compression=zipfile.ZIP_STORED)) == dict(BOTH)


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_kind_of_tar(unpacked, kind):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz", format=kind) as archive:
        for name, content in [("notes/" + "n" * 90 + ".txt", b"n"), *BOTH]:
            archive.addfile(member(name, content)[0], io.BytesIO(content))
    assert unpacked(made.getvalue()) == dict(BOTH)


@pytest.mark.parametrize("pack", FORMATS)
@pytest.mark.parametrize(
    "name",
    ["../evil", "/evil", "a/../../evil", "..", "a/..", "C:evil", "c:/evil", "..\\evil", "a\\b", "//evil/share"],
)
def test_a_path_that_may_lead_outside_is_refused(unpacked, pack: Pack, name):
    with pytest.raises(AdapterInvalid, match="not a path inside it"):
        unpacked(pack([*BOTH, (name, b"evil")]))


@pytest.mark.parametrize("name", [f"../{CONFIG_FILE}", f"/{WEIGHTS_FILE}"])
@pytest.mark.parametrize("pack", FORMATS)
def test_an_adapter_file_outside_the_archive_is_refused(unpacked, pack: Pack, name):
    with pytest.raises(AdapterInvalid, match="not a path inside it"):
        unpacked(pack([(name, b"evil")]))


def test_a_nul_in_a_zips_name_is_refused(unpacked):
    content = zipped([*BOTH, ("adapter.txt", b"")]).replace(b"adapter.txt", b"adapt\0r.txt")
    with pytest.raises(AdapterInvalid, match="not a path inside it"):
        unpacked(content)


@pytest.mark.parametrize("pack", FORMATS)
def test_a_duplicate_name_is_refused(unpacked, pack: Pack):
    with pytest.raises(AdapterInvalid, match=f"holds '{CONFIG_FILE}' twice"):
        unpacked(pack([*BOTH, (f"./{CONFIG_FILE}", b"{}")]))


@pytest.mark.parametrize("pack", FORMATS)
@pytest.mark.parametrize(
    "other", [[(f"checkpoint/{name}", content) for name, content in BOTH], [(GLINER2_WEIGHTS_FILE, WEIGHTS)]]
)
def test_two_adapters_are_refused(unpacked, pack: Pack, other: Files):
    with pytest.raises(AdapterInvalid, match="more than one adapter"):
        unpacked(pack([*BOTH, *other]))


@pytest.mark.parametrize("pack", FORMATS)
def test_gliner2s_own_weights_get_the_name_of_pefts(unpacked, pack: Pack):
    assert unpacked(pack([(CONFIG_FILE, CONFIG), (GLINER2_WEIGHTS_FILE, WEIGHTS)])) == dict(BOTH)


@pytest.mark.parametrize("pack", FORMATS)
def test_files_deeper_than_one_folder_are_refused(unpacked, pack: Pack):
    with pytest.raises(AdapterInvalid, match="not deeper"):
        unpacked(pack([(f"a/b/{name}", content) for name, content in BOTH]))


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, b"Z"],
)
@pytest.mark.parametrize("name", ["other", CONFIG_FILE])
def test_a_special_file_in_a_tar_is_refused(unpacked, kind, name):
    link = member(name, type=kind, linkname="../../secret")
    with pytest.raises(AdapterInvalid, match="neither a plain file nor a folder"):
        unpacked(tarred([link, *BOTH[1:]]))


def test_a_link_in_a_zip_is_refused(unpacked):
    link = zipfile.ZipInfo(CONFIG_FILE)
    link.external_attr = 0o120777 << 16
    with pytest.raises(AdapterInvalid, match="neither a plain file nor a folder"):
        unpacked(zipped([(link, b"../../secret"), *BOTH[1:]]))


def test_a_sparse_file_is_refused(unpacked):
    headers = {"GNU.sparse.map": "0,1", "GNU.sparse.numblocks": "1", "GNU.sparse.size": str(10 * MIB)}
    sparse = member(CONFIG_FILE, b"x", pax_headers=headers)
    with pytest.raises(AdapterInvalid, match="neither a plain file nor a folder"):
        unpacked(tarred([sparse, *BOTH[1:]]))


def test_an_encrypted_zip_is_refused(unpacked):
    content = bytearray(zipped(BOTH))
    directory = content.index(b"PK\x01\x02")
    content[directory + 8] |= 1
    with pytest.raises(AdapterInvalid, match="encrypted"):
        unpacked(bytes(content))


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compressions_than_deflate_are_refused(unpacked, compression):
    with pytest.raises(AdapterInvalid, match="deflate"):
        unpacked(zipped(BOTH, compression=compression))


@pytest.mark.parametrize("pack", FORMATS)
def test_the_number_of_entries_is_limited(unpacked, pack: Pack):
    unpacked(pack([*BOTH, *[(f"{number}.txt", b"") for number in range(62)]]))


@pytest.mark.parametrize("pack", FORMATS)
def test_one_entry_more_is_refused(unpacked, pack: Pack):
    with pytest.raises(TooLarge, match="more than 64 entries"):
        unpacked(pack([*[(f"{number}.txt", b"") for number in range(63)], *BOTH]))


@pytest.mark.parametrize("pack", FORMATS)
def test_all_files_together_are_limited(unpacked, pack: Pack):
    size = len(CONFIG) + len(WEIGHTS) + 1000
    assert unpacked(pack([*BOTH, ("README.md", b"r" * 1000)]), max_bytes=size) == dict(BOTH)


@pytest.mark.parametrize("pack", FORMATS)
def test_one_byte_more_is_refused(unpacked, pack: Pack):
    size = len(CONFIG) + len(WEIGHTS) + 999
    with pytest.raises(TooLarge, match=f"more than {size} bytes"):
        unpacked(pack([*BOTH, ("README.md", b"r" * 1000)]), max_bytes=size)


@pytest.mark.parametrize("pack", [zipped, tgz])
@pytest.mark.parametrize("name", ["README.md", WEIGHTS_FILE])
def test_unpacking_stops_at_200_times_the_archives_size(unpacked, tmp_path, pack: Pack, name):
    with pytest.raises(TooLarge, match="200 times"):
        unpacked(pack([(CONFIG_FILE, CONFIG), (name, b"\0" * 18 * MIB)]), max_bytes=100 * MIB)
    assert sum(path.stat().st_size for path in (tmp_path / "into").iterdir()) <= 17 * MIB


def test_what_a_zip_declares_is_not_trusted(unpacked):
    content = bytearray(zipped([(CONFIG_FILE, CONFIG), (WEIGHTS_FILE, b"\0" * MIB)]))
    for signature, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        place = content.rindex(signature) + offset
        assert struct.unpack_from("<I", content, place) == (MIB,)
        struct.pack_into("<I", content, place, 10)
    with pytest.raises(AdapterInvalid, match="damaged"):
        unpacked(bytes(content))


@pytest.mark.parametrize("size", [2 * MIB, 2**40, -512])
def test_what_a_tar_declares_is_not_trusted(unpacked, size):
    info, _ = member(WEIGHTS_FILE)
    info.size = size
    content = info.tobuf(tarfile.GNU_FORMAT) + b"\0" * 2048
    with pytest.raises((AdapterInvalid, TooLarge)):
        unpacked(content)


@pytest.mark.parametrize("pack", [tarred, tgz])
def test_a_tars_header_of_any_size_is_not_read(unpacked, pack):
    long = member("x", pax_headers={"comment": "c" * MIB})
    with pytest.raises(AdapterInvalid, match="headers are too large"):
        unpacked(pack([long, *BOTH]), max_bytes=100 * MIB)


def test_a_zips_directory_of_any_size_is_not_read(unpacked):
    with pytest.raises(AdapterInvalid, match="directory is too large"):
        unpacked(zipped([(f"{'n' * 200}{number}", b"") for number in range(2000)]), max_bytes=100 * MIB)


def test_trailing_bytes_of_any_number_are_not_read(unpacked):
    with pytest.raises(AdapterInvalid, match="headers are too large"):
        unpacked(tarred(BOTH) + b"\0" * MIB)


@pytest.mark.parametrize("pack", FORMATS)
@pytest.mark.parametrize("missing", FILES)
def test_a_missing_file_is_named(unpacked, pack: Pack, missing):
    with pytest.raises(AdapterInvalid, match=f"there is no {missing}"):
        unpacked(pack([(name, content) for name, content in BOTH if name != missing]))


@pytest.mark.parametrize("name", ["adapter_model.bin", "x/training_args.pt", "adapter.pkl"])
def test_pickles_are_refused_where_the_safetensors_file_is_missing(unpacked, name):
    with pytest.raises(AdapterInvalid, match="never unpickled"):
        unpacked(zipped([(CONFIG_FILE, CONFIG), (name, b"evil")]))


def test_pickles_are_skipped_otherwise(unpacked):
    assert unpacked(zipped([*BOTH, ("training_args.bin", b"evil")])) == dict(BOTH)


@pytest.mark.parametrize("content", [b"", b"PK", b"no archive", b"\x1f\x8b", b"PK\x05\x06", b"\0" * 1024])
def test_a_file_that_is_not_an_archive_is_refused(unpacked, content):
    with pytest.raises(AdapterInvalid):
        unpacked(content)


def test_a_gzip_of_something_else_is_refused(unpacked):
    with pytest.raises(AdapterInvalid, match="damaged"):
        unpacked(gzip.compress(b"something else" * 100))


def test_a_wrong_gzip_checksum_is_detected(unpacked):
    content = bytearray(tgz(BOTH))
    content[-8] ^= 1
    with pytest.raises(AdapterInvalid, match="damaged"):
        unpacked(bytes(content))


def test_a_full_disk_is_not_reported_as_a_damaged_archive(tmp_path):
    """A limit on file sizes simulates a full disk."""
    archive = tmp_path / "archive"
    archive.write_bytes(tarred([(CONFIG_FILE, CONFIG), (WEIGHTS_FILE, b"\0" * 2 * MIB)]))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, hard))
    try:
        with pytest.raises(OSError, match="large") as raised:
            unpack(archive, tmp_path, max_bytes=10 * MIB)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert raised.value.errno == errno.EFBIG


SEGMENTS = st.sampled_from(["", ".", "..", "a", "C:", "\\", "é", *FILES])
NAMES = st.lists(SEGMENTS, min_size=1, max_size=4).map("/".join).filter(bool)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("archives")


def harmless(place: Path, content: bytes) -> dict[str, bytes] | None:
    """The unpacked files, or None if the archive was refused; nothing else is written anywhere."""
    (place / "archive").write_bytes(content)
    into = place / "below" / "into"
    into.mkdir(parents=True, exist_ok=True)
    for path in into.iterdir():
        path.unlink()
    try:
        with suppress(GLiNERBentoError):
            unpack(place / "archive", into, max_bytes=MIB)
            return {path.name: path.read_bytes() for path in into.iterdir()}
    finally:
        assert {path.name for path in into.iterdir()} <= set(FILES)
        assert {str(path.relative_to(place)) for path in place.rglob("*") if into not in path.parents} == {
            "archive",
            "below",
            "below/into",
        }
    return None


@given(names=st.lists(NAMES, max_size=4), pack=st.sampled_from(FORMATS))
@settings(max_examples=150, deadline=None)
def test_no_name_leads_outside(place, names, pack: Pack):
    found = harmless(place, pack([(name, name.encode()) for name in names]))
    assert found is None or found.keys() == set(FILES)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_an_archive_truncated_anywhere_is_complete_or_refused(place, data):
    content = data.draw(st.sampled_from([pack(BOTH) for pack in FORMATS]))
    found = harmless(place, content[: data.draw(st.integers(0, len(content)))])
    assert found in (None, dict(BOTH))


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_damaged_archives_are_refused_or_harmless(place, data):
    content = bytearray(data.draw(st.sampled_from([pack(BOTH) for pack in FORMATS])))
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    harmless(place, bytes(content))
