"""A bulk job over the real gateway: formats, columns, errors, and what a checkpoint is worth."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from bulk_program import client, run
from doubles.memory_replica import INFO, MemoryReplica

from gliner_bento import cli
from gliner_bento.client import many
from gliner_bento.errors import QueueFull, StartupError
from gliner_bento.files.bulk import job as bulk
from gliner_bento.files.bulk.checkpoint import SavedProgress, load
from gliner_bento.files.bulk.side_files import SUFFIXES, locked

REFUSED = "Oslo " * 30


@pytest.fixture
def folder(tmp_path):
    """A folder of texts, and files of each format beside it."""
    texts = tmp_path / "texts"
    (texts / "sub").mkdir(parents=True)
    (texts / "b.txt").write_text("in Oslo")
    (texts / "sub" / "a.md").write_text("Oslo or Oslo")
    (texts / ".hidden.txt").write_text("city")
    (texts / "image.png").write_bytes(b"\x89")
    (tmp_path / "a.jsonl").write_text('{"id": 1, "text": "Oslo"}\n\n{"id": 2.5, "text": null, "more": [1]}\n')
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b'{"id": 3, "text": "no"}\n'))
    (tmp_path / "c.csv").write_text('id,text\n4,"in Oslo,\nin ""quotes"""\n')
    (tmp_path / "d.tsv").write_text("id\ttext\n5\tOslo\n")
    return tmp_path


def rows_of(path: Path) -> list[dict]:
    content = path.read_bytes()
    return [json.loads(line) for line in (gzip.decompress(content) if path.suffix == ".gz" else content).splitlines()]


def words(row: dict) -> list[str]:
    assert all(row["text"][one["start"] : one["end"]] == one["text"] for one in row["entities"])
    return [one["text"] for one in row["entities"]]


def test_the_files_of_a_folder_are_records_in_the_order_of_their_names(folder, tmp_path):
    report = run(tmp_path / "out.jsonl", [str(folder / "texts")])
    rows = rows_of(tmp_path / "out.jsonl")
    assert [(row["file"], words(row)) for row in rows] == [("b.txt", ["Oslo"]), ("sub/a.md", ["Oslo", "Oslo"])]
    assert (report.records, report.failed, report.errors) == (2, 0, None)
    assert {path.name for path in tmp_path.glob("out*")} == {"out.jsonl"}


def test_records_of_every_format_keep_their_columns(folder, tmp_path):
    names = ["a.jsonl", "b.jsonl.gz", "c.csv", "d.tsv"]
    run(tmp_path / "out.jsonl.gz", [str(folder / name) for name in names])
    rows = rows_of(tmp_path / "out.jsonl.gz")
    assert [row["id"] for row in rows] == [1, 2.5, 3, "4", "5"]
    assert rows[1] == {"id": 2.5, "text": None, "more": [1], "entities": [], "relations": []}
    assert [words(row) for row in rows if row["text"]] == [["Oslo"], [], ["Oslo"], ["Oslo"]]


def test_its_requests_have_a_lower_priority(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "Oslo"}')
    replica = MemoryReplica()
    run(tmp_path / "out.jsonl", [str(tmp_path / "a.jsonl")], clients=[client(replica)])
    assert [call.priority for _, call in replica.calls] == [bulk.PRIORITY]


@pytest.mark.parametrize("name", ["", "link"])
def test_the_output_in_the_folder_of_the_input_is_no_input(folder, name):
    output = folder / "out.jsonl"
    (folder / "link").symlink_to(".")
    assert run(output, [str(folder / name)]).records == 7
    assert run(output, [str(folder / name)], overwrite=True).records == 7


def test_a_record_that_fails_is_in_the_side_file(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "city"}) + "\n" + json.dumps({"text": REFUSED, "id": 7}))
    report = run(tmp_path / "out.jsonl", [str(tmp_path / "a.jsonl")])
    assert report.failed == 1
    assert len(rows_of(tmp_path / "out.jsonl")) == 1
    (error,) = rows_of(Path(report.errors))
    assert error["place"] == f"{tmp_path}/a.jsonl: line 2"
    assert error["error"]["code"] == "too_large"
    assert error["record"] == {"text": REFUSED, "id": 7}


@pytest.fixture
def damaged(tmp_path):
    """A folder of which two files cannot be read as UTF-8, or without skipping a line."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"id": "1", "text": "Oslo"}\n{broken}\n{"id": "2", "text": "Oslo"}\n{"txt": 1}\n')
    (folder / "b.txt").write_bytes("Malm\xf6 Oslo".encode("latin-1"))
    (folder / "c.csv").write_text('id,text\n3,Oslo\n4\n4,"a"b\n5,Oslo\n')
    (folder / "d.txt").write_text("Oslo")
    return folder


def test_files_that_cannot_be_read_are_skipped_and_the_others_have_results(damaged, tmp_path):
    report = run(tmp_path / "out.jsonl", [str(damaged)])
    assert [row["file"] for row in rows_of(tmp_path / "out.jsonl")] == ["d.txt"]
    assert (report.records, report.failed) == (1, 0)
    assert {Path(path).name: fault.partition(": ")[2] for path, fault in report.skipped.items()} == {
        "a.jsonl": "line 2: JSON is malformed: object keys must be strings (byte 1)",
        "b.txt": "not utf-8: invalid start byte; name its encoding with --encoding",
        "c.csv": "record 2: 1 fields, the header has 2 (ends at line 3)",
    }


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
def test_an_encoding_is_named_and_invalid_lines_fail_alone_also_after_a_kill(damaged, tmp_path, monkeypatch, name):
    monkeypatch.setattr(bulk, "CHUNK_RECORDS", 1)
    output, options = tmp_path / name, {"encoding": "latin-1", "skip_invalid": True}
    take = bulk._Run.take

    def interrupt(self, result):
        take(self, result)
        if self._checkpoint.done == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(bulk._Run, "take", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(output, [str(damaged)], **options)
    monkeypatch.setattr(bulk._Run, "take", take)
    report = run(output, [str(damaged)], **options)
    assert (report.records, report.failed, report.skipped) == (10, 4, {})
    assert 0 < report.resumed < 10
    places = [Path(error["place"]).name for error in rows_of(Path(report.errors))]
    assert places == ["a.jsonl: line 2", "a.jsonl: line 4", "c.csv: record 2", "c.csv: record 3"]
    if name.endswith("jsonl"):
        rows = rows_of(output)
        assert [row.get("id", row["text"]) for row in rows] == ["1", "2", "Malm\xf6 Oslo", "3", "5", "Oslo"]


def test_a_line_of_another_encoding_fails_alone_and_a_mark_names_the_encoding(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "Malm\xf6"}\n{"text": "city"}\n')
    (tmp_path / "b.jsonl").write_bytes('{"text": "Malm\xf6 city"}\n'.encode("utf-16"))
    report = run(tmp_path / "out.jsonl", [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")], skip_invalid=True)
    assert [row["text"] for row in rows_of(tmp_path / "out.jsonl")] == ["city", "Malm\xf6 city"]
    assert "not utf-8" in rows_of(Path(report.errors))[0]["error"]["message"]


def test_a_file_that_cannot_be_read_is_one_line_and_code_2(tmp_path, capsys, commands_call):
    commands_call()
    (tmp_path / "a.txt").write_bytes(b"\xff")
    (tmp_path / "b.txt").write_text("city")
    assert cli.main(["bulk", str(tmp_path), "-o", str(tmp_path / "out.jsonl"), "--labels", "city"]) == 2
    written = capsys.readouterr()
    assert written.err.startswith(f"gliner-bento: bulk: {tmp_path}/a.txt: not utf-8: ")
    assert written.out == f"{tmp_path}/out.jsonl: 1 record\n"


def test_csv_has_a_row_for_each_entity_also_after_a_kill(damaged, tmp_path, monkeypatch):
    inputs, options = [str(damaged)], {"encoding": "latin-1", "skip_invalid": True}
    run(tmp_path / "whole.csv", inputs, **options)
    with (tmp_path / "whole.csv").open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert header == ["file", "record", "start", "end", "text", "label", "score"]
    assert [row[:6] for row in rows[:4]] == [
        ["a.jsonl", "1", "0", "4", "Oslo", "city"],
        ["a.jsonl", "3", "0", "4", "Oslo", "city"],
        ["b.txt", "1", "0", "5", "Malm\xf6", "city"],
        ["b.txt", "1", "6", "10", "Oslo", "city"],
    ]
    monkeypatch.setattr(bulk, "CHUNK_RECORDS", 1)
    save = SavedProgress.save

    def save_twice(self, path):
        save(self, path)
        if self.done == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(SavedProgress, "save", save_twice)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out.csv", inputs, **options)
    monkeypatch.setattr(SavedProgress, "save", save)
    assert run(tmp_path / "out.csv", inputs, **options).resumed == 3
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_a_record_may_have_labels_and_an_adapter_of_its_own(tmp_path):
    (tmp_path / "a.csv").write_text('text,mine,who\nOslo,"town, place",\nOslo,,\nOslo,,gone\n')
    columns = {"labels_column": "mine", "adapter_column": "who"}
    report = run(tmp_path / "out.jsonl", [str(tmp_path / "a.csv")], **columns)
    labels = [one["label"] for row in rows_of(tmp_path / "out.jsonl") for one in row["entities"]]
    assert labels == ["town", "city"]
    assert [one["error"]["code"] for one in rows_of(Path(report.errors))] == ["adapter_not_found"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"text": "a"}\n{bad}\n', "a.jsonl: line 2: JSON is malformed"),
        ("a.jsonl", b'{"text": "NaN"}\n{"text": NaN}\n', "a.jsonl: line 2: NaN is no JSON value; write null"),
        ("a.jsonl", b'{"text": "a", "n": [-Infinity]}\n', "a.jsonl: line 1: -Infinity is no JSON value; write null"),
        ("a.jsonl", b'{"text": "a", "n": NaN\n', "a.jsonl: line 1: NaN is no JSON value"),
        ("a.jsonl", b'{"text": "a"}\n\n[1]\n', "a.jsonl: line 3: must be a JSON object"),
        ("a.jsonl", b'{"text": "a"}\n{"body": "a"}\n', "a.jsonl: line 2: no column 'text'; there are body"),
        (
            "a.csv",
            b"id;text\n1;a\n",
            "there are id;text; it is only one column: is ';' the delimiter? .csv needs commas",
        ),
        ("a.csv", b"id\ttext\n1\ta\n", "is a tab the delimiter? .csv needs commas, .tsv tabs"),
        ("a.jsonl", b'{"text": 3}\n', "a.jsonl: line 1: column 'text' must be a string or null"),
        ("a.jsonl", b'{"text": "", "entities": []}\n', "a.jsonl: line 1: a column of the output is in the input"),
        ("a.csv", b"text,b\n1,2\n1,2,3\n", "a.csv: record 2: 3 fields, the header has 2 (ends at line 3)"),
        ("a.csv", b"b,b\n1,2\n", "a.csv: record 1: two columns of the header have the same name"),
        ("a.csv", b'text\na\n"a"b\n', "a.csv: record 2: a quote is inside a cell; put the cell in quotes, and double"),
        ("a.csv", b'text\na\n"b\n', "a.csv: record 2: line 3: a quote is not closed"),
        ("a.csv", b"text\ncaf\xe9\n", "a.csv: not utf-8: invalid continuation byte; name its encoding with --encoding"),
        ("a.txt.gz", b"no gzip", "a.txt.gz: Not a gzipped file"),
        ("a.jsonl", b"", "a.jsonl: no records"),
        ("a.odt", b"", "a.odt: must be a file, one of .txt, .md"),
        ("", b"", "gone: no such file or folder"),
    ],
)
def test_input_that_cannot_be_read_is_refused_before_the_work(name, content, message, tmp_path):
    path = tmp_path / (name or "gone")
    if name:
        path.write_bytes(content)
    with pytest.raises(StartupError) as refused:
        run(tmp_path / "out.jsonl", [str(path)])
    assert message in str(refused.value)
    assert not list(tmp_path.glob("out.jsonl.[ceu]*"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": None}, "--labels or --labels-column"),
        ({"options": {"threshold": 2.0}}, "threshold: Input should be less than or equal to 1"),
        ({"clients": [client(), client(MemoryReplica(replace(INFO, model="b")))]}, "different models: memory"),
    ],
)
def test_options_that_no_record_can_use_are_refused(options, message, folder, tmp_path):
    with pytest.raises(StartupError, match=message):
        run(tmp_path / "out.jsonl", [str(folder / "a.jsonl")], **options)


def test_a_file_that_exists_is_kept(folder, tmp_path):
    (tmp_path / "out.jsonl").write_text("mine")
    with pytest.raises(StartupError, match=r"out\.jsonl: exists; choose another name, or --overwrite"):
        run(tmp_path / "out.jsonl", [str(folder / "a.jsonl")])
    assert run(tmp_path / "out.jsonl", [str(folder / "a.jsonl")], overwrite=True).records == 2
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(StartupError, match=r"pipe\.jsonl: is a device, a pipe or a socket"):
        run(tmp_path / "pipe.jsonl", [str(folder / "a.jsonl")], overwrite=True)


@pytest.mark.parametrize(
    ("given", "output"),
    [
        ("a.jsonl", "a.jsonl"),
        ("a.jsonl", "link.jsonl"),
        ("link.jsonl", "a.jsonl"),
        ("a.jsonl", "hard.jsonl"),
        ("a.jsonl", "folder/a.jsonl"),
        ("folder/a.jsonl", "a.jsonl"),
        ("out.jsonl.errors.jsonl", "out.jsonl"),
        ("out.jsonl.errors.jsonl", "folder/out.jsonl"),
    ],
)
def test_no_input_is_overwritten_whatever_its_name(given, output, tmp_path):
    row = json.dumps({"text": REFUSED}) + "\n"
    for name in ("a.jsonl", "out.jsonl.errors.jsonl"):
        (tmp_path / name).write_text(row)
    (tmp_path / "link.jsonl").symlink_to("a.jsonl")
    (tmp_path / "hard.jsonl").hardlink_to(tmp_path / "a.jsonl")
    (tmp_path / "folder").symlink_to(".")
    before = sorted(tmp_path.iterdir())
    for overwrite in (False, True):
        with pytest.raises(StartupError, match="is an input; choose another output"):
            run(tmp_path / output, [str(tmp_path / given)], overwrite=overwrite)
    assert sorted(tmp_path.iterdir()) == before
    assert {(tmp_path / name).read_text() for name in ("a.jsonl", "out.jsonl.errors.jsonl")} == {row}


def test_what_a_job_would_replace_is_kept_until_its_input_is_read(tmp_path):
    for name in ("out.jsonl", "out.jsonl.errors.jsonl"):
        (tmp_path / name).write_text("earlier")
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(StartupError, match="no records"):
        run(tmp_path / "out.jsonl", [str(tmp_path / "empty.jsonl")], overwrite=True)
    assert {path.read_text() for path in tmp_path.glob("out*")} == {"earlier"}
    (tmp_path / "out.jsonl").unlink()
    with pytest.raises(StartupError, match=r"out\.jsonl\.errors\.jsonl: exists; choose another name"):
        run(tmp_path / "out.jsonl", [str(tmp_path / "empty.jsonl")])


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("content", ["", "mine", '{"key": 1}', "[" * 100_000])
@pytest.mark.parametrize("suffix", [suffix for suffix in SUFFIXES if suffix != "merged"])
def test_a_file_with_the_name_of_a_side_file_is_kept(tmp_path, suffix, content, overwrite):
    (tmp_path / "a.txt").write_text("city")
    other = tmp_path / f"out.jsonl.{suffix}"
    other.write_text(content)
    with pytest.raises(StartupError, match=re.escape(str(other))):
        run(tmp_path / "out.jsonl", [str(tmp_path / "a.txt")], overwrite=overwrite)
    assert other.read_text() == content
    assert {path.name for path in tmp_path.iterdir()} == {"a.txt", other.name}


@pytest.mark.parametrize("suffix", ["merged", "unfinished", "checkpoint.new"])
def test_a_file_that_a_job_would_write_later_is_kept(tmp_path, suffix):
    (tmp_path / "a.txt").write_text("city")
    other = tmp_path / f"out.parquet.{suffix}"
    other.write_text("mine")
    with pytest.raises(StartupError, match=re.escape(str(other))):
        run(tmp_path / "out.parquet", [str(tmp_path / "a.txt")], overwrite=True)
    assert other.read_text() == "mine"


def test_the_errors_and_the_lock_of_an_earlier_run_are_replaced(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": REFUSED}))
    output = tmp_path / "out.jsonl"
    with locked(output):
        kept = (tmp_path / "out.jsonl.lock").read_bytes()
        with pytest.raises(StartupError, match="another run is writing it"):
            run(output, [str(tmp_path / "a.jsonl")])
    assert run(output, [str(tmp_path / "a.jsonl")]).failed == 1
    (tmp_path / "out.jsonl.lock").write_bytes(kept)  # as a killed run leaves it
    (tmp_path / "out.jsonl.checkpoint.new").write_text("{")
    assert run(output, [str(tmp_path / "a.jsonl")], overwrite=True).failed == 1
    assert {path.name for path in tmp_path.glob("out*")} == {"out.jsonl", "out.jsonl.errors.jsonl"}


@pytest.mark.parametrize("size", [200, 241, 255])
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_an_output_may_have_a_name_as_long_as_a_file_system_allows(tmp_path, suffix, size):
    (tmp_path / "a.txt").write_text("city")
    (tmp_path / "b.jsonl").write_text(json.dumps({"text": REFUSED}))
    output = tmp_path / f"{'n' * (size - len(suffix) - 1)}.{suffix}"
    first = run(output, [str(tmp_path)])
    assert (first.records, first.failed) == (2, 1)
    assert Path(first.errors).exists()
    assert run(output, [str(tmp_path)], overwrite=True).records == 2  # neither output nor errors are inputs
    assert len(list(tmp_path.iterdir())) == 4


def test_files_of_one_name_in_several_folders_are_told_apart(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.txt").write_text("Oslo")
    inputs = [str(tmp_path / "one"), str(tmp_path / "two")]
    for name in ("out.jsonl", "out.csv"):
        run(tmp_path / name, inputs)
    expected = [f"{folder}/a.txt" for folder in inputs]
    assert [row["file"] for row in rows_of(tmp_path / "out.jsonl")] == expected
    with (tmp_path / "out.csv").open(newline="") as file:
        assert [row["file"] for row in csv.DictReader(file)] == expected


def test_names_that_are_not_unicode_are_read_and_written_with_escapes(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / os.fsdecode(b"caf\xe9.txt")).write_text("Oslo")
    (folder / os.fsdecode(b"bad\xe9.jsonl")).write_text('{"text": "Oslo"}\n{"text": ""\n')
    (folder / os.fsdecode(b"no\xe9.txt")).write_bytes(b"\xff")
    (folder / "ok.txt").write_text("Oslo")
    report = run(tmp_path / "out.jsonl", [str(folder)], skip_invalid=True)
    assert (report.records, report.failed) == (4, 1)
    assert [row.get("file") for row in rows_of(tmp_path / "out.jsonl")] == [None, "caf\\xe9.txt", "ok.txt"]
    assert rows_of(Path(report.errors))[0]["place"] == f"{folder}/bad\\xe9.jsonl: line 2"
    assert [*report.skipped] == [f"{folder}/no\\xe9.txt"]


@pytest.fixture
def interrupted(tmp_path, monkeypatch):
    """A job of 40 records in chunks of 4, interrupted after a few; returns its output and input."""
    monkeypatch.setattr(bulk, "CHUNK_RECORDS", 4)
    rows = [{"id": number, "text": "city"} for number in range(40)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    save, saves = SavedProgress.save, []

    def save_five(self, path):
        save(self, path)
        saves.append(path)
        if len(saves) == 6:
            raise KeyboardInterrupt

    monkeypatch.setattr(SavedProgress, "save", save_five)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out.jsonl", [str(tmp_path / "a.jsonl")])
    monkeypatch.setattr(SavedProgress, "save", save)
    return tmp_path / "out.jsonl", tmp_path / "a.jsonl"


def test_a_job_continues_after_its_last_chunk(interrupted):
    output, source = interrupted
    unfinished = output.with_name("out.jsonl.unfinished")
    unfinished.write_bytes(unfinished.read_bytes() + b'{"id": half')
    replica = MemoryReplica()
    report = run(output, [str(source)], clients=[client(replica)])
    assert (report.records, report.resumed) == (40, 20)
    assert len(replica.admitted) == 20
    assert [row["id"] for row in rows_of(output)] == list(range(40))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda source: {"labels": ["town"]}, "belongs to a job with other labels"),
        (lambda source: {"options": {"threshold": 0.9}}, "belongs to a job with other threshold"),
        (lambda source: source.write_text(source.read_text() + " \n") and {}, "other files"),
    ],
)
def test_a_job_continues_only_as_it_began(interrupted, change, message):
    output, source = interrupted
    with pytest.raises(StartupError, match=message):
        run(output, [str(source)], **change(source))
    assert run(output, [str(source)], overwrite=True).records == 40


def test_a_job_does_not_continue_without_an_option_that_it_began_with(tmp_path):
    SavedProgress({"labels": ["city"], "threshold": 0.9}, 1, {}).save(tmp_path / "checkpoint")
    with pytest.raises(StartupError, match="belongs to a job with other threshold"):
        load(tmp_path / "checkpoint", {"labels": ["city"]})


def test_a_server_that_refuses_everything_ends_the_job_and_keeps_its_results(interrupted, monkeypatch):
    output, source = interrupted
    monkeypatch.setattr(many, "delay_s", lambda attempt, retry_after_s: 10**6)
    with pytest.raises(QueueFull):
        run(output, [str(source)], clients=[client(MemoryReplica(queue_capacity=0))])
    assert run(output, [str(source)]).resumed == 20


def test_memory_does_not_depend_on_the_input(tmp_path, monkeypatch):
    """Records are read as results are taken."""
    (tmp_path / "a.jsonl").write_text('{"text": "no"}\n' * 3000)
    held = []
    taken = bulk._Run.take

    def take(self, result):
        held.append(len(self._pending) + len(self._rows))
        taken(self, result)

    monkeypatch.setattr(bulk._Run, "take", take)
    run(tmp_path / "out.jsonl", [str(tmp_path / "a.jsonl")])
    assert len(held) == 3000
    assert max(held) <= many.DEFAULT_WINDOW + bulk.CHUNK_RECORDS + 2 * many.MAX_TEXTS


def test_parquet_keeps_types_and_has_typed_columns(folder, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"id": pa.array([1, 2, 3], pa.int8()), "day": pa.array([0, 1, None], pa.date32())})
    table = table.append_column("text", pa.array(["in Oslo", None, REFUSED]))
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=2)
    report = run(tmp_path / "out.parquet", [str(tmp_path / "t.parquet"), str(folder / "a.jsonl")])
    written = pq.read_table(tmp_path / "out.parquet")
    assert report.failed == 1
    assert written.schema.field("day").type == pa.date32()
    assert written.schema.field("id").type == pa.float64()
    assert written.schema.field("more").type == pa.list_(pa.int64())
    assert str(written.schema.field("entities").type).startswith("list<element: struct<start: int64, end: int64")
    rows = written.to_pylist()
    assert [row["id"] for row in rows] == [1, 2, 1, 2.5]
    assert words(rows[0]) == ["Oslo"]
    (tmp_path / "m.jsonl").write_text('{"text": "", "a": 1}\n{"text": "", "a": {"b": 1}}\n')
    with pytest.raises(StartupError, match=r"m\.jsonl: column 'a'.*Parquet needs one type per column"):
        run(tmp_path / "m.parquet", [str(tmp_path / "m.jsonl")])


def test_parquet_without_pyarrow_is_one_line(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(StartupError, match=r"Parquet needs pyarrow; install the extra bulk: "):
        run(tmp_path / "out.parquet", [str(folder / "a.jsonl")])
