"""Files and folders: what is kept byte for byte, what fails alone, and the way back."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from gliner_bento.errors import InvalidField, NotReady, StartupError
from gliner_bento.files.records.readers import ReadOptions
from gliner_bento.files.redaction.files import RedactionReport, find_files, redact_files, restore_files
from gliner_bento.files.redaction.mapping import new_mapping
from gliner_bento.privacy.conversation import Finds
from gliner_bento.privacy.redact import RestoreError, restore_anyway
from gliner_bento.privacy.spans import find_patterns
from gliner_bento.privacy.styles import Placeholders, mask
from gliner_bento.settings.configuration import PROJECT_ROOT
from gliner_bento.storage.files import file_lock
from gliner_bento.tasks.base import ExtractionWarning
from gliner_bento.tasks.extraction import BatchResult, Entity, Extraction

pytestmark = pytest.mark.long

UTF16 = "Ada\r\nmet\rAda\nBob \U0001f600".encode("utf-16")


async def people(texts: Iterable[str]) -> AsyncIterator[BatchResult]:
    """A model that knows two names."""
    for text in texts:
        await asyncio.sleep(0)
        if "refused" in text:
            yield BatchResult(error=InvalidField("text: too long").detail())
        else:
            found = [Entity(one.start(), one.end(), one[0], "person", 1.0) for one in re.finditer("Ada|Bob", text)]
            yield BatchResult(Extraction(found))


async def nobody(texts: Iterable[str]) -> AsyncIterator[BatchResult]:
    for _ in texts:
        yield BatchResult(Extraction([]))


async def people_later(texts: Iterable[str]) -> AsyncIterator[BatchResult]:
    """A model that has read all texts before it answers."""
    async for result in people(list(texts)):
        yield result


def find(text, by_model):
    return Finds([*by_model, *find_patterns(text)])


def redact_folder(folder, out, options=ReadOptions(), styles=Placeholders, model=people):  # noqa: B008
    report = RedactionReport()
    jobs, report.skipped = find_files([folder], out)
    with tempfile.TemporaryDirectory() as scratch:
        with new_mapping(Path(scratch, "mapping.jsonl")) as mapping:
            asyncio.run(redact_files(jobs, options, styles, model, find=find, mapping=mapping, report=report))
        return report, Path(scratch, "mapping.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("style", [Placeholders, lambda: mask])
def test_a_folder_is_redacted_and_restored_byte_for_byte(tmp_path, style):
    files = {
        "a.txt": b"\xef\xbb\xbfAda met Bob,\r\nand bob@example.org.\n",
        "sub/b.md": UTF16,
        "c.jsonl": b'{"id":1,  "text" : "Caf\\u00e9 Ada", "more": "Ada"}\r\n\n{"text": null}\n',
        "d.csv": 'id;text\r\n"1";"x ""Ada"" y"\r\n'.replace(";", ",").encode(),
        "empty.txt": b"",
        "e.TXT": b"no name",
    }
    for name, content in files.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(content)
    (tmp_path / "in" / "f.odt").write_bytes(b"Ada")
    (tmp_path / "in" / ".g.txt").write_bytes(b"Ada")
    report, mapping = redact_folder(tmp_path / "in", tmp_path / "out", styles=style)
    assert (report.files, report.failed, report.redacted) == (6, {}, {"person": 7, "email address": 1})
    assert report.skipped == [str(tmp_path / "in" / name) for name in (".g.txt", "f.odt")]
    redacted = contents(tmp_path / "out")
    assert redacted.keys() == files.keys()
    if style is Placeholders:
        assert redacted["a.txt"] == b"\xef\xbb\xbf[PERSON_1] met [PERSON_2],\r\nand [EMAIL_ADDRESS_1].\n"
        assert redacted["sub/b.md"].decode("utf-16") == "[PERSON_1]\r\nmet\r[PERSON_1]\n[PERSON_2] \U0001f600"
        assert redacted["c.jsonl"] == files["c.jsonl"].replace(b"9 Ada", b"9 [PERSON_1]")
        assert redacted["d.csv"] == files["d.csv"].replace(b"Ada", b"[PERSON_1]")
    jobs, _ = find_files([tmp_path / "out"], tmp_path / "again")
    report = RedactionReport()
    restore_files(jobs, ReadOptions(), mapping, report)
    assert report.failed == {}
    assert contents(tmp_path / "again") == files


def test_a_legacy_encoding_is_named_and_kept(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_bytes("Zoë met Ada".encode("cp1252"))
    report, _ = redact_folder(tmp_path / "in", tmp_path / "out")
    assert "not utf-8" in report.failed[str(tmp_path / "in" / "a.txt")]
    assert not list((tmp_path / "out").rglob("*.txt*"))
    report, _ = redact_folder(tmp_path / "in", tmp_path / "out", ReadOptions(encoding="cp1252"))
    assert contents(tmp_path / "out") == {"a.txt": "Zoë met [PERSON_1]".encode("cp1252")}


def test_a_compressed_file_is_redacted_and_restored(tmp_path):
    content = b'{"text": "Ada"}\r\n\n{"text": "x"}'
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.JSONL.GZ").write_bytes(gzip.compress(content))
    (tmp_path / "in" / "b.txt.gz").write_bytes(gzip.compress(b"Ada" * 10_000)[:-9])
    report, mapping = redact_folder(tmp_path / "in", tmp_path / "out")
    assert "ended before" in report.failed[str(tmp_path / "in" / "b.txt.gz")]
    assert {name: gzip.decompress(file) for name, file in contents(tmp_path / "out").items()} == {
        "a.JSONL.GZ": content.replace(b"Ada", b"[PERSON_1]")
    }
    report = RedactionReport()
    restore_files(find_files([tmp_path / "out"], tmp_path / "again")[0], ReadOptions(), mapping, report)
    assert gzip.decompress((tmp_path / "again" / "a.JSONL.GZ").read_bytes()) == content


def test_an_encoding_that_does_not_keep_every_byte_is_refused(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_bytes(b"+AEEAZABh-")  # UTF-7 writes Ada without escapes
    report, _ = redact_folder(tmp_path / "in", tmp_path / "out", ReadOptions(encoding="utf-7"))
    assert "does not keep every byte" in report.failed[str(tmp_path / "in" / "a.txt")]
    assert contents(tmp_path / "out") == {}


@pytest.mark.parametrize("model", [people, people_later])
def test_a_file_that_fails_leaves_no_copy_and_the_others_are_written(tmp_path, model):
    (tmp_path / "in").mkdir()
    for name, text in {"a.txt": "Ada", "b.txt": "refused Ada", "c.txt": "Bob"}.items():
        (tmp_path / "in" / name).write_text(text)
    (tmp_path / "in" / "d.jsonl").write_text('{"text": "Ada"}\n{"text": "refused"}\n{"text": "Bob"}\n')
    (tmp_path / "in" / "e.jsonl").write_text('{"text": "Ada"}\n{"txt": "Ada"}\n')
    report, _ = redact_folder(tmp_path / "in", tmp_path / "out", model=model)
    assert contents(tmp_path / "out") == {"a.txt": b"[PERSON_1]", "c.txt": b"[PERSON_1]"}
    assert {name.rpartition("/")[2]: reason for name, reason in report.failed.items()} == {
        "b.txt": "text: too long",
        "d.jsonl": "text: too long",
        "e.jsonl": "line 2: no column 'text'; there are 'txt': choose with --columns",
    }


def test_a_run_that_ends_early_leaves_no_half_written_copy(tmp_path):
    async def gone(texts: Iterable[str]) -> AsyncIterator[BatchResult]:
        for number, text in enumerate(texts):
            if number == 2:
                raise NotReady("gone")
            async for result in people([text]):
                yield result

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("Ada")
    (tmp_path / "in" / "b.jsonl").write_text('{"text": "Ada"}\n' * 3)
    with pytest.raises(NotReady):
        redact_folder(tmp_path / "in", tmp_path / "out", model=gone)
    assert contents(tmp_path / "out") == {"a.txt": b"[PERSON_1]"}


def test_what_a_killed_run_has_left_is_removed_and_nothing_else(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "in" / "a.txt").write_text("Ada")
    part = "gliner-bento-part"
    of_others = [".a.txt.1.part", f".a.txt.{part}", f".a.txt.1x.{part}", f".b.txt.1.{part}", f"a.txt.1.{part}"]
    kept = [*of_others, f".a.txt.2.{part}"]
    for name in [f".a.txt.1.{part}", *kept]:
        (tmp_path / "out" / name).write_text("x")
    with file_lock(tmp_path / "out" / kept[-1]):  # another run writes it
        redact_folder(tmp_path / "in", tmp_path / "out")
    assert contents(tmp_path / "out") == {"a.txt": b"[PERSON_1]"} | dict.fromkeys(kept, b"x")


def test_a_killed_run_leaves_no_copy_and_the_next_one_removes_its_part(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"text": "Ada"}\n' * 3)
    program = (
        "import os, signal; from tests.unit.redaction import test_files as one; from pathlib import Path\n"
        "async def model(texts):\n"
        "    async for result in one.people(texts):\n"
        "        yield result\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        f"folder = Path({str(tmp_path)!r}); one.redact_folder(folder / 'in', folder / 'out', model=model)"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=PROJECT_ROOT, check=False)
    assert ended.returncode == -signal.SIGKILL
    (left,) = (tmp_path / "out").iterdir()
    assert re.fullmatch(r"\.a\.jsonl\.\d+\.gliner-bento-part", left.name)
    redact_folder(tmp_path / "in", tmp_path / "out")
    assert contents(tmp_path / "out") == {"a.jsonl": b'{"text": "[PERSON_1]"}\n' * 3}


def test_a_full_disk_fails_one_file(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"text": "x"}\n' * 10_000)
    (tmp_path / "in" / "b.txt").write_text("Ada")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        report, _ = redact_folder(tmp_path / "in", tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(report.failed.values()) == ["File too large"]
    assert contents(tmp_path / "out") == {"b.txt": b"[PERSON_1]"}


ADA = Entity(4, 7, "Ada", "person", 1.0)
CUT = ExtractionWarning("max_entities", "cut")


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (Extraction([replace(ADA, end=4)]), "not in the text at its offsets"),
        (Extraction([replace(ADA, end=4, text="")]), "not in the text at its offsets"),
        (Extraction([replace(ADA, start=5, end=8)]), "not in the text at its offsets"),
        (Extraction([replace(ADA, start=-3)]), "not in the text at its offsets"),
        (Extraction([replace(ADA, end=700)]), "not in the text at its offsets"),
        (Extraction([], truncated=True), "only the beginning"),
        (Extraction([], warnings=[CUT]), "only a part of the entities"),
        (None, "no result"),
    ],
)
def test_a_result_that_is_wrong_or_not_whole_fails_its_file(tmp_path, result, reason):
    async def model(texts: Iterable[str]) -> AsyncIterator[BatchResult]:
        for text in texts:
            yield BatchResult(result if text == "met Ada" else Extraction([]))

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("met Ada")
    (tmp_path / "in" / "b.txt").write_text("x")
    report, _ = redact_folder(tmp_path / "in", tmp_path / "out", model=model)
    assert reason in report.failed[str(tmp_path / "in" / "a.txt")]
    assert contents(tmp_path / "out") == {"b.txt": b"x"}


def test_documents_are_records_and_a_run_may_share_its_numbers(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("text\nAda\nBob\nAda\n")
    redact_folder(tmp_path / "in", tmp_path / "out")
    assert (tmp_path / "out" / "a.csv").read_text() == "text\n[PERSON_1]\n[PERSON_1]\n[PERSON_1]\n"
    shared = Placeholders()
    redact_folder(tmp_path / "in", tmp_path / "out", styles=lambda: shared)
    assert (tmp_path / "out" / "a.csv").read_text() == "text\n[PERSON_1]\n[PERSON_2]\n[PERSON_1]\n"


def test_equal_names_have_equal_placeholders_in_all_files_of_a_run(tmp_path):
    pytest.importorskip("pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"text": ["Bob", "Ada"]}), tmp_path / "in" / "a.parquet")
    (tmp_path / "in" / "b.txt").write_text("Ada, ada@example.org")
    (tmp_path / "in" / "c.jsonl.gz").write_bytes(gzip.compress(b'{"text": "ADA@example.org met Bob, Ada"}\n'))
    shared = Placeholders()
    redact_folder(tmp_path / "in", tmp_path / "out", styles=lambda: shared)
    assert pq.read_table(tmp_path / "out" / "a.parquet").column("text").to_pylist() == ["[PERSON_1]", "[PERSON_2]"]
    assert (tmp_path / "out" / "b.txt").read_text() == "[PERSON_2], [EMAIL_ADDRESS_1]"
    lines = gzip.decompress((tmp_path / "out" / "c.jsonl.gz").read_bytes())
    assert lines == b'{"text": "[EMAIL_ADDRESS_1] met [PERSON_1], [PERSON_2]"}\n'


def test_a_copy_of_an_earlier_run_is_named_where_the_file_fails(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("Ada")
    redact_folder(tmp_path / "in", tmp_path / "out")
    (tmp_path / "in" / "a.txt").write_text("refused Ada")
    report, _ = redact_folder(tmp_path / "in", tmp_path / "out")
    (reason,) = report.failed.values()
    assert reason == f"text: too long; {tmp_path / 'out' / 'a.txt'} is of an earlier run"


def test_a_check_lists_what_would_be_replaced_also_where_it_is_not_found_itself(tmp_path):
    """The model finds Ada once in each file; the other places are those of an equal value."""

    async def model(texts: Iterable[str]) -> AsyncIterator[BatchResult]:
        for text in texts:
            yield BatchResult(Extraction([Entity(4, 7, "Ada", "person", 1.0)] if text.startswith("met ") else []))

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("met Ada\n\nAda, ada and\n'Ada'")
    (tmp_path / "in" / "b.jsonl").write_text(
        '{"text": "x"}\n{"more": "Ada \\" Ada", "text": "met Ada"}\n{"text": "Ada"}\n'
    )
    (tmp_path / "in" / "c.csv").write_text('more,text\n"\nAda","met Ada\n Ada"\n')
    options = ReadOptions(columns=["*"])
    written, _ = redact_folder(tmp_path / "in", tmp_path / "out", options, model=model)
    report, _ = redact_folder(tmp_path / "in", None, options, model=model)
    found = [(Path(one.file).name, one.line) for one in report.left]
    in_text, in_json, in_csv = [("a.txt", line) for line in (1, 3, 4)], [("b.jsonl", 2)] * 3, [("c.csv", 3)] * 2
    assert found == [*in_text, *in_json, *in_csv, ("c.csv", 4)]
    assert {one.text for one in report.left} == {"Ada"}
    assert written.redacted == {"person": len(found)}
    assert [*written.failed, *report.failed] == []


@pytest.mark.parametrize("cut", [Extraction([], truncated=True), None])
def test_a_file_whose_check_is_not_whole_has_failed(tmp_path, cut):
    async def model(texts: Iterable[str]) -> AsyncIterator[BatchResult]:
        async for result in people(texts):
            yield result if result.result.entities else BatchResult(cut)

    (tmp_path / "a.txt").write_text("[PERSON_1]\n[PERSON_6ac3c336e4094835] met\nAda")
    (tmp_path / "b.txt").write_text("x")
    report, _ = redact_folder(tmp_path, None, model=model)
    assert [(one.line, one.text) for one in report.left] == [(3, "Ada")]
    assert [*report.failed] == [str(tmp_path / "b.txt")]


def test_the_model_that_checks_does_not_see_placeholders(tmp_path):
    """It would find a person in [PERSON_1]."""
    seen = []

    async def model(texts: Iterable[str]) -> AsyncIterator[BatchResult]:
        for text in texts:
            seen.append(text)
            yield BatchResult(Extraction([]))

    (tmp_path / "a.txt").write_text("[PERSON_1] met [EMAIL_ADDRESS_6ac3c336e4094835], [Ada_1] and [IBAN_x]")
    redact_folder(tmp_path, None, model=model)
    assert seen == [" " * 10 + " met " + " " * 32 + ", " + " " * 7 + " and [IBAN_x]"]


def test_an_edited_copy_is_restored_where_its_placeholders_are_unambiguous(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("Ada met Bob")
    _, mapping = redact_folder(tmp_path / "in", tmp_path / "out")
    (tmp_path / "out" / "a.txt").write_text("Summary: [PERSON_2] was met by [PERSON_1].")
    report = RedactionReport()
    restore_files(find_files([tmp_path / "out"], tmp_path / "again")[0], ReadOptions(), mapping, report)
    assert (tmp_path / "again" / "a.txt").read_text() == "Summary: Bob was met by Ada."
    from gliner_bento.privacy.redact import ReplacedText

    entries = [ReplacedText(0, "person", "[PERSON_1]", name) for name in ("Ada", "Bob")]
    with pytest.raises(RestoreError, match="several originals"):
        restore_anyway("x [PERSON_1]", entries)


def test_a_summary_of_several_files_is_restored_by_its_placeholders(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    documents, summaries, run = tmp_path / "documents", tmp_path / "summaries", Placeholders()
    documents.mkdir()
    summaries.mkdir()
    (documents / "a.txt").write_text("Ada met Bob")
    (documents / "b.txt").write_text("Bob left")
    (summaries / "both.txt").write_text("[PERSON_1] and [PERSON_2].")
    (summaries / "neither.txt").write_text("[PERSON_9] and [1].")
    pq.write_table(pa.table({"text": ["[PERSON_2]"]}), summaries / "c.parquet")
    for styles, restored in ((lambda: run, "Ada and Bob."), (Placeholders, None)):
        _, mapping = redact_folder(documents, tmp_path / "out", styles=styles)
        report = RedactionReport()
        restore_files(find_files([summaries], tmp_path / "again")[0], ReadOptions(), mapping, report)
        assert (tmp_path / "again" / "neither.txt").read_text() == "[PERSON_9] and [1]."
        assert report.failed.pop(str(summaries / "neither.txt")) == "the mapping has no original of [PERSON_9]"
        if restored:
            assert pq.read_table(tmp_path / "again" / "c.parquet")["text"].to_pylist() == ["Bob"]
            assert (tmp_path / "again" / "both.txt").read_text() == restored
            (tmp_path / "again" / "both.txt").unlink()
        else:
            assert "[PERSON_1] has several originals" in report.failed[str(summaries / "both.txt")]


@pytest.mark.parametrize(
    "line",
    [
        *("1", "{}\n", "{\n", "[" * 100_000, '{"a": ' * 100_000, "{\udcff}\n"),
        *('{"file": "a", "start": "0", "label": "x", "replacement": "[X_1]", "text": "y"}', '{"file": "a"}'),
        '{"file": "a", "replacements": "x", "sha256": ""}\n',
    ],
    ids=range(9),
)
def test_a_line_that_is_not_of_a_mapping_is_named(tmp_path, line):
    (tmp_path / "a.txt").write_text("[X_1]")
    with pytest.raises(ValueError, match="line 1: not a line of a mapping"):
        restore_files(find_files([tmp_path / "a.txt"], tmp_path / "b")[0], ReadOptions(), [line], RedactionReport())


def restored(folder, out, mapping):
    report = RedactionReport()
    restore_files(find_files([folder], out)[0], ReadOptions(), mapping, report)
    return report


@pytest.mark.parametrize("style", [Placeholders, lambda: mask])
def test_a_copy_whose_originals_are_not_all_in_the_mapping_is_not_called_restored(tmp_path, style):
    (tmp_path / "in").mkdir()
    for name in ("a.txt", "b.txt"):
        (tmp_path / "in" / name).write_text("Ada met [FIGURE_1] and Bob")
    _, mapping = redact_folder(tmp_path / "in", tmp_path / "out", styles=style)
    whole = restored(tmp_path / "out", tmp_path / "again", mapping)
    assert (whole.files, whole.failed) == (2, {})
    cut = [line for line in mapping if "a.txt" in line or "Ada" in line]
    report = restored(tmp_path / "out", tmp_path / "again", cut)
    left = "lacks some of its originals: [FIGURE_1]" + (", [PERSON_2]" if style is Placeholders else "")
    assert (report.files, report.failed) == (1, {str(tmp_path / "out" / "b.txt"): f"the mapping {left}"})
    assert (tmp_path / "again" / "a.txt").read_bytes() == (tmp_path / "in" / "a.txt").read_bytes()


def test_placeholders_that_an_edited_copy_has_gained_are_named(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("Ada")
    _, mapping = redact_folder(tmp_path / "in", tmp_path / "out")
    names = ", ".join(f"[CITY_{number}]" for number in range(1, 24))
    (tmp_path / "out" / "a.txt").write_text(f"[PERSON_1], x[i_1], {names}")
    (reason,) = restored(tmp_path / "out", tmp_path / "again", mapping).failed.values()
    assert reason == f"the mapping has no original of {names.partition(', [CITY_21]')[0]} and 3 more"
    assert (tmp_path / "again" / "a.txt").read_text() == f"Ada, x[i_1], {names}"


def test_a_copy_without_replacements_keeps_what_looks_like_a_placeholder(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("Ada")
    (tmp_path / "in" / "b.txt").write_text("see [PERSON_1]")
    _, mapping = redact_folder(tmp_path / "in", tmp_path / "out")
    assert restored(tmp_path / "out", tmp_path / "again", mapping).failed == {}
    assert contents(tmp_path / "again") == contents(tmp_path / "in")


@pytest.mark.parametrize("records", [1, 400])
def test_a_killed_run_has_the_originals_of_every_copy_on_the_disk(tmp_path, records):
    """It is killed when the model answers the text after the last copy: its lines may wait in a buffer."""
    (tmp_path / "in").mkdir()
    for number in range(30):
        (tmp_path / "in" / f"{number:02}.jsonl").write_text(f'{{"text": "Ada {number} Bob"}}\n' * records)
    program = (
        "import asyncio, os, signal; from tests.unit.redaction import test_files as one; from pathlib import Path\n"
        "async def model(texts):\n"
        "    async for result in one.people(texts):\n"
        "        yield result\n"
        f"        if result.result and len(list(Path({str(tmp_path)!r}).glob('out/*.jsonl'))) == 20:\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "with one.new_mapping(folder / 'mapping') as mapping:\n"
        "    jobs, _ = one.find_files([folder / 'in'], folder / 'out')\n"
        "    asyncio.run(one.redact_files(jobs, one.ReadOptions(), one.Placeholders, model, find=one.find,\n"
        "        mapping=mapping, report=one.RedactionReport()))"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=PROJECT_ROOT, check=False)
    assert ended.returncode == -signal.SIGKILL
    with (tmp_path / "mapping").open(encoding="utf-8") as mapping:
        report = restored(tmp_path / "out", tmp_path / "again", mapping)
    assert report.failed == {}
    again = contents(tmp_path / "again")
    assert len(again) >= 20
    assert again == {name: content for name, content in contents(tmp_path / "in").items() if name in again}


def test_a_mapping_that_a_killed_run_has_cut_off_serves_its_copies(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("Ada")
    _, mapping = redact_folder(tmp_path / "in", tmp_path / "out")
    for cut in ('{"file": "b.txt", "start": 0, "te', '{"file": "b\udcc3'):
        assert restored(tmp_path / "out", tmp_path / "again", [*mapping, cut]).failed == {}


@pytest.mark.parametrize("size", [200, 201, 241, 255])
def test_names_as_long_as_a_file_system_allows(tmp_path, size):
    (tmp_path / "in").mkdir()
    name = f"{'n' * (size - 4)}.txt"
    (tmp_path / "in" / name).write_text("Ada")
    report, mapping = redact_folder(tmp_path / "in", tmp_path / "out")
    assert report.failed == {}
    assert restored(tmp_path / "out", tmp_path / "again", mapping).failed == {}
    assert contents(tmp_path / "again") == {name: b"Ada"}


def test_a_name_that_is_not_unicode_is_in_the_mapping(tmp_path):
    (tmp_path / "in").mkdir()
    name = os.fsdecode(b"caf\xe9.txt")
    (tmp_path / "in" / name).write_text("Ada met \u00e9 Bob")
    _, mapping = redact_folder(tmp_path / "in", tmp_path / "out")
    assert restored(tmp_path / "out", tmp_path / "again", mapping).failed == {}
    assert contents(tmp_path / "again") == contents(tmp_path / "in")


def test_check_reports_what_is_left_with_its_line(tmp_path):
    (tmp_path / "a.txt").write_text("x\r\nwrite to ada@example.org\n")
    (tmp_path / "b.jsonl").write_text('{"text": "x"}\n{"text": "4111 1111 1111 1111"}\n')
    report, _ = redact_folder(tmp_path, None, model=nobody)
    assert [(one.file.rpartition("/")[2], one.line, one.label, one.text) for one in report.left] == [
        ("a.txt", 2, "email address", "ada@example.org"),
        ("b.jsonl", 2, "credit card number", "4111 1111 1111 1111"),
    ]


def test_inputs_and_outputs_that_cannot_be_are_refused(tmp_path):
    (tmp_path / "a.txt").write_text("Ada")
    (tmp_path / "b.odt").write_text("Ada")
    os.mkfifo(tmp_path / "fifo.txt")
    for inputs, output, message in [
        ([tmp_path], tmp_path / "out", "is inside the input"),
        ([tmp_path / "a.txt"], tmp_path / "a.txt", "is an input"),
        ([tmp_path / "a.txt"], tmp_path / "fifo.txt", "is a device, a pipe or a socket"),
        ([tmp_path / "gone"], None, "no such file or folder"),
        ([tmp_path / "b.odt"], None, "must be a file, one of .txt"),
        ([tmp_path / "fifo.txt"], None, "must be a file, one of .txt"),
        ([tmp_path / "a.txt", tmp_path], tmp_path.parent / "other", "two inputs have this name"),
    ]:
        with pytest.raises((StartupError, ValueError), match=message):
            find_files(inputs, output)


def test_what_is_in_a_folder_and_not_read_is_named(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.txt").write_text("Ada")
    os.mkfifo(tmp_path / "in" / "fifo.txt")
    (tmp_path / "in" / "linked").symlink_to(tmp_path / "more")
    (tmp_path / "in" / "gone.txt").symlink_to(tmp_path / "nowhere")
    (tmp_path / "in" / "linked.txt").symlink_to(tmp_path / "more" / "a.txt")
    report, _ = redact_folder(tmp_path / "in", tmp_path / "out")
    assert sorted(report.skipped) == [str(tmp_path / "in" / name) for name in ("fifo.txt", "gone.txt", "linked")]
    assert contents(tmp_path / "out") == {"linked.txt": b"[PERSON_1]"}


def test_parquet_keeps_other_columns_types_and_row_groups(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(
        {
            "id": pa.array([1, 2, 3], pa.int16()),
            "text": pa.array(["Ada", None, "x Bob"], pa.large_string()),
            "note": pa.array(["Ada", "b", None]),
        }
    ).replace_schema_metadata({"k": "v"})
    (tmp_path / "in").mkdir()
    pq.write_table(table, tmp_path / "in" / "a.parquet", row_group_size=2, compression="gzip")
    report, mapping = redact_folder(tmp_path / "in", tmp_path / "out", ReadOptions(columns=["text"]))
    assert report.failed == {}
    written = pq.ParquetFile(tmp_path / "out" / "a.parquet")
    assert written.read().column("text").to_pylist() == ["[PERSON_1]", None, "x [PERSON_1]"]
    assert written.schema_arrow.equals(table.schema, check_metadata=True)
    assert [written.metadata.row_group(group).num_rows for group in range(written.num_row_groups)] == [2, 1]
    assert written.metadata.row_group(0).column(0).compression == "GZIP"
    assert json.loads(mapping[1])["row"] == 2
    report = RedactionReport()
    restore_files(find_files([tmp_path / "out"], tmp_path / "again")[0], ReadOptions(), mapping, report)
    assert report.failed == {}
    assert pq.read_table(tmp_path / "again" / "a.parquet").equals(table)
