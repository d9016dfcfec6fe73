"""`gliner-bento redact`: files in, copies out; by recognizers alone, so that no model is loaded."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import resource
import signal
import stat
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from doubles.memory_replica import INFO

from gliner_bento import cli
from gliner_bento.cli import backend
from gliner_bento.client import AsyncClient
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.redaction import RedactionOptions
from gliner_bento.privacy.conversation import Finds, redact_document
from gliner_bento.privacy.recognizers.labels import PERSONAL_LABELS, PRESIDIO_LABELS
from gliner_bento.privacy.spans import LabeledSpan
from gliner_bento.privacy.styles import Placeholders
from gliner_bento.settings import Settings
from gliner_bento.tasks.extraction import BatchResult, Entity, Extraction, SourcedEntity
from tests.unit.bulk.bulk_program import MemoryReplica, client

pytestmark = pytest.mark.long

TEXT = "Write to ada@example.org, or ADA@example.org.\r\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "in" / "a.txt").write_bytes(TEXT.encode())
    (tmp_path / "in" / "b.jsonl").write_text('{"text": "bob@example.org", "note": "bob@example.org"}\n')
    return tmp_path


def redact(folder, *arguments):
    words = ["redact", *(word.replace("{}", str(folder)) for word in arguments)]
    return cli.main(words if "--check" in words or "--restore" in words else [*words, "--patterns-only"])


def test_a_folder_is_redacted_and_restored(folder, capsys):
    (folder / "mapping.jsonl").touch(0o644)
    assert redact(folder, "{}/in", "-o", "{}/out", "--mapping", "{}/mapping.jsonl") == 2
    assert capsys.readouterr() == (
        "2 files: 3 email address\n",
        f"gliner-bento: redact: {folder}/in/b.jsonl: not looked at: 'note'; choose with --columns ('*': all)\n",
    )
    assert (folder / "out" / "a.txt").read_bytes() == b"Write to [EMAIL_ADDRESS_1], or [EMAIL_ADDRESS_1].\r\n"
    assert (folder / "out" / "b.jsonl").read_text() == '{"text": "[EMAIL_ADDRESS_1]", "note": "bob@example.org"}\n'
    assert stat.S_IMODE((folder / "mapping.jsonl").stat().st_mode) == 0o600
    assert redact(folder, "--restore", "{}/mapping.jsonl", "{}/out", "-o", "{}/again") == 0
    for name in ("a.txt", "b.jsonl"):
        assert (folder / "again" / name).read_bytes() == (folder / "in" / name).read_bytes()


def test_lists_of_flags_and_settings_add_up(folder, capsys, monkeypatch):
    (folder / "deny.yaml").write_text(
        "code:\n- pattern: '[A-Z]{3}(?=@)'\n  case_sensitive: true\n- value: write\n  case_sensitive: true\n"
    )
    monkeypatch.setenv("GLINER_ALLOW_LIST", '["bob@example.org"]')
    flags = ["--allow-list", "or, ADA@example.org", "--deny-list", "@{}/deny.yaml"]
    assert redact(folder, "{}/in", "-o", "{}/out", *flags, "--keep-columns", "note") == 0
    assert (folder / "out" / "a.txt").read_text() == "Write to ada@example.org, or [CODE_1]@example.org.\n"
    assert (folder / "out" / "b.jsonl").read_bytes() == (folder / "in" / "b.jsonl").read_bytes()
    capsys.readouterr()
    for wrong, message in (("(", "pattern: missing )"), ("(?R)", "recursion")):
        (folder / "deny.yaml").write_text(json.dumps([{"pattern": wrong}]))
        assert redact(folder, "{}/in", "-o", "{}/out", *flags) == 1
        assert message in capsys.readouterr().err
    assert redact(folder, "{}/in", "-o", "{}/out", "--deny-list", "@{}/none") == 1
    assert "--deny-list: " in capsys.readouterr().err


def test_what_is_left_in_a_restored_file_is_one_line_and_code_2(folder, capsys):
    assert redact(folder, "{}/in/a.txt", "-o", "{}/a.txt", "--mapping", "{}/mapping.jsonl") == 0
    (folder / "a.txt").write_text("[EMAIL_ADDRESS_1] and [PERSON_1]")
    capsys.readouterr()
    assert redact(folder, "--restore", "{}/mapping.jsonl", "{}/a.txt", "-o", "{}/again.txt") == 2
    assert capsys.readouterr() == (
        "0 files, restored\n",
        f"gliner-bento: redact: {folder}/a.txt: the mapping has no original of [PERSON_1]\n",
    )
    assert (folder / "again.txt").read_text() == "ada@example.org and [PERSON_1]"


def test_names_that_are_not_unicode_are_printed_with_escapes(folder, capfd):
    (folder / "in" / os.fsdecode(b"caf\xe9.txt")).write_bytes(b"\xff")
    assert redact(folder, "{}/in", "-o", "{}/out", "--json") == 2
    assert json.loads(capfd.readouterr().out)["failed"].keys() == {f"{folder}/in/" + os.fsdecode(b"caf\xe9.txt")}


def test_a_label_has_one_placeholder_whoever_has_found_it():
    placeholders = Placeholders()
    text = "ada@example.org +44 20 4111 a date"
    tags = {"email": "EMAIL_ADDRESS", "email address": "EMAIL_ADDRESS", "phone": "PHONE_NUMBER", "iban": "IBAN_CODE"}
    tags |= {"credit card number": "CREDIT_CARD", "date": "DATE", "date of birth": "DATE_OF_BIRTH"}
    assert {label: placeholders(text, LabeledSpan(0, 15, label)) for label in tags} == {
        k: f"[{v}_1]" for k, v in tags.items()
    }
    assert {"date"} <= set(PERSONAL_LABELS)
    assert "date of birth" not in PERSONAL_LABELS
    assert {PRESIDIO_LABELS[name] for name in ("EMAIL_ADDRESS", "PHONE_NUMBER", "CREDIT_CARD")} <= set(PERSONAL_LABELS)


class Model:
    """A client whose model takes `NOW` for a date and persons, and finds nothing else. asked: labels of its calls.
    only: how often it finds it in a text; None: always."""

    max_labels, only = 5, None

    def __init__(self):
        self.asked, self.texts = [], []

    async def model(self):
        return self

    async def extract_many(self, texts, labels, **_):
        self.asked.append(labels)
        for text in texts:
            self.texts.append(text)
            matches = [*re.finditer("NOW", text)][: self.only]
            found = [Entity(*match.span(), match[0], *about) for match in matches for about in NOW]
            yield BatchResult(Extraction(found))


NOW = [("date", 0.9), ("person", 0.4)]
PERSONAL = "My name is \U0001d5d4\U0001d5f1\U0001d5ee Ek, write to ada@example.org NOW.\n"


@pytest.fixture
def model(monkeypatch):
    model = Model()

    @asynccontextmanager
    async def client(*_):
        yield model

    monkeypatch.setattr(backend, "client", client)
    return model


@pytest.mark.parametrize(
    ("flags", "asked", "default_threshold"),
    [
        ((), RedactionOptions(), 0.5),
        ((), RedactionOptions(), 0.7),
        (("--no-patterns",), RedactionOptions(recognizers=False), 0.5),
        (("--threshold", "0.3"), RedactionOptions(threshold=0.3), 0.5),
        (("--recognizers", "CREDIT_CARD"), RedactionOptions(recognizers=["CREDIT_CARD"]), 0.5),
    ],
)
def test_by_default_the_same_is_redacted_as_by_the_server(folder, model, monkeypatch, flags, asked, default_threshold):
    """The same labels are asked for; what a text announces is found, and what can be no personal data is left."""
    monkeypatch.setenv("GLINER_DEFAULT_THRESHOLD", str(default_threshold))
    (folder / "in" / "a.txt").write_text(PERSONAL)
    assert cli.main(["redact", str(folder / "in" / "a.txt"), "-o", str(folder / "a.txt"), *flags]) == 0
    assert model.asked == [asked.extraction(Settings.load().view(GatewayOptions)).labels]
    found = [Entity(*match.span(), match[0], *about) for match in re.finditer("NOW", PERSONAL) for about in NOW]
    if asked.recognizers is None:
        email = re.search(r"ada@example\.org", PERSONAL)
        found.append(SourcedEntity(*email.span(), email[0], "email address", 1.0, "pattern"))
    spans = asked.spans(PERSONAL, Extraction(found))
    expected = redact_document([PERSONAL], [Finds(spans)], Placeholders()).texts[0].text
    assert (folder / "a.txt").read_text() == expected
    assert ("[PERSON_1]" in expected) is (asked.recognizers is not False)
    assert model.texts == ["My name is Ada Ek, write to ada@example.org NOW.\n"]


@pytest.mark.parametrize(("flags", "threshold"), [((), {"threshold": 0.1}), (("--threshold", "0.3"), {})])
def test_of_a_server_its_limit_of_labels_counts(folder, model, monkeypatch, flags, threshold):
    monkeypatch.setenv("GLINER_DEFAULT_THRESHOLD", "0.7")
    flags = ["--url", "http://127.0.0.1:9", "-o", f"{folder}/a.txt", *flags]
    assert cli.main(["redact", f"{folder}/in/a.txt", *flags]) == 0
    (labels,) = model.asked
    assert len(labels) == Model.max_labels == 5
    assert labels["person"] == threshold


def test_with_labels_all_is_redacted_that_the_model_says(folder, model):
    (folder / "in" / "a.txt").write_text(PERSONAL)
    flags = ["--labels", "person,date"]
    assert cli.main(["redact", str(folder / "in" / "a.txt"), "-o", str(folder / "a.txt"), *flags]) == 0
    assert model.asked == [["person", "date"]]
    assert (folder / "a.txt").read_text() == PERSONAL.replace("NOW", "[DATE_1]").replace(
        "ada@example.org", "[EMAIL_ADDRESS_1]"
    )


def test_an_allow_list_holds_for_what_a_text_announces(folder, model):
    (folder / "in" / "a.txt").write_text("my name is Ada Ek")
    assert cli.main(["redact", f"{folder}/in/a.txt", "-o", f"{folder}/a.txt", "--allow-list", "Ada Ek"]) == 0
    assert (folder / "a.txt").read_text() == "my name is Ada Ek"


def test_what_is_found_once_is_replaced_at_each_place_but_those_that_are_allowed(folder, model):
    (folder / "in" / "a.txt").write_text("I am NOW. NOW Inc. pays. " + "x " * 9 + "\nNOW again")
    flags = ["--labels", "person", "--allow-list", "NOW Inc"]
    model.only = 1
    assert cli.main(["redact", f"{folder}/in/a.txt", "-o", f"{folder}/a.txt", *flags]) == 0
    expected = "I am [DATE_1]. NOW Inc. pays. " + "x " * 9 + "\n[DATE_1] again"
    assert (folder / "a.txt").read_text() == expected


def test_an_earlier_mapping_is_not_overwritten(folder, capsys):
    (folder / "mapping.jsonl").write_text("{}")
    assert redact(folder, "{}/in", "-o", "{}/out", "--mapping", "{}/mapping.jsonl") == 1
    assert "mapping.jsonl exists" in capsys.readouterr().err
    assert (folder / "mapping.jsonl").read_text() == "{}"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is full")
def test_a_mapping_that_cannot_be_written_is_named(folder, capsys):
    assert redact(folder, "{}/in", "-o", "{}/out", "--mapping", "/dev/full") == 1
    assert capsys.readouterr().err.endswith("redact: /dev/full: No space left on device\n")
    assert not [*(folder / "out").rglob("*.*")]


def test_a_run_may_share_its_placeholders(folder):
    assert redact(folder, "{}/in", "-o", "{}/out", "--scope", "run", "--columns", "text,note") == 0
    assert (folder / "out" / "b.jsonl").read_text() == '{"text": "[EMAIL_ADDRESS_2]", "note": "[EMAIL_ADDRESS_2]"}\n'


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        ("mask", "Write to ***************, or ***************.\r\n"),
        ("remove", "Write to , or .\r\n"),
        ("hash", "Write to [EMAIL_ADDRESS_{}], or [EMAIL_ADDRESS_{}].\r\n"),
    ],
)
def test_styles(folder, monkeypatch, style, expected):
    monkeypatch.setenv("GLINER_CLIENT_REDACT_KEY", "0123456789abcdef")
    assert redact(folder, "{}/in/a.txt", "-o", "{}/a.txt", "--style", style) == 0
    written = (folder / "a.txt").read_bytes().decode()
    digest = written.partition("_ADDRESS_")[2][:16]
    assert written == expected.format(digest, digest)


def test_obfuscated_data_is_redacted_and_each_match_of_a_check_is_one_line(folder, capsys):
    text = (
        "ref\nCard 4539 1488\n   0343 6467, ada [at] mail (dot) example, 4\u03365\u033639 1488\u200b 0343 6467\u0336\n"
    )
    (folder / "in" / "a.txt").write_text(text, encoding="utf-8")
    assert redact(folder, "--check", "{}/in/a.txt") == 3
    assert capsys.readouterr().out.splitlines() == [
        f"{folder}/in/a.txt:2: credit card number: 4539 1488 0343 6467",
        f"{folder}/in/a.txt:3: email address: ada [at] mail (dot) example",
        f"{folder}/in/a.txt:3: credit card number: 4\u03365\u033639 1488\u200b 0343 6467\u0336",
        "3 matches of the recognizers",
    ]
    assert redact(folder, "{}/in/a.txt", "-o", "{}/out.txt", "--patterns-only", "--check", "--mapping", "{}/m") == 0
    masked = "ref\nCard [CREDIT_CARD_1], [EMAIL_ADDRESS_1], [CREDIT_CARD_2]\n"
    assert (folder / "out.txt").read_text(encoding="utf-8") == masked
    assert redact(folder, "--restore", "{}/m", "{}/out.txt", "-o", "{}/back.txt") == 0
    assert (folder / "back.txt").read_text(encoding="utf-8") == text


def test_check_shows_what_is_left_and_the_exit_code_says_so(folder, capsys):
    assert redact(folder, "--check", "{}/in/a.txt") == 3
    assert capsys.readouterr().out.splitlines() == [
        f"{folder}/in/a.txt:1: email address: ada@example.org",
        f"{folder}/in/a.txt:1: email address: ADA@example.org",
        "2 matches of the recognizers",
    ]
    assert redact(folder, "{}/in", "-o", "{}/out", "--patterns-only", "--check", "--json") == 2
    report = json.loads(capsys.readouterr().out)
    assert report == {
        "files": 2,
        "records": 2,
        "redacted": {"email address": 3},
        "failed": {},
        "skipped": [],
        "left": [],
        "unseen": {f"{folder}/in/b.jsonl": ["note"]},
        "warnings": {},
        "as_text": {},
    }


@pytest.fixture
def tables(tmp_path):
    """A folder with a table of each format, in which `text` is clean and the other columns are not."""
    folder = tmp_path / "in"
    folder.mkdir()
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    record = {"text": "x", "id": 7, "to": {"mail": "bob@example.org", "n": [1, None]}, "cc": ["", "eve@example.org"]}
    deeper = {"text": None, "to": None, "cc": [[{"k": "+49 30 1234567"}]]}
    (folder / "a.jsonl").write_text(f"{json.dumps(record)}\n{json.dumps(deeper)}\n")
    (folder / "b.csv").write_text("id,text,mail,empty\n7,x,bob@example.org,\n")
    columns = {"text": ["x"], "id": [7], "mail": ["bob@example.org"], "tags": [["eve@example.org"]], "v": [[0.5]]}
    pq.write_table(pa.table(columns), folder / "c.parquet")
    return tmp_path


def test_columns_and_strings_that_are_not_looked_at_are_named(tables, capsys):
    unseen = {
        f"{tables}/in/a.jsonl": ["to.mail", "cc[]", "cc[][].k"],
        f"{tables}/in/b.csv": ["id", "mail"],
        f"{tables}/in/c.parquet": ["mail", "tags"],
    }
    for mode in (["--check"], ["-o", "{}/out"]):
        assert redact(tables, "{}/in", *mode, "--json") == 2
        written = capsys.readouterr()
        assert json.loads(written.out)["unseen"] == unseen
        lines = [f"{path}: not looked at: {', '.join(map(repr, names))};" for path, names in unseen.items()]
        assert [line in shown for line, shown in zip(lines, written.err.splitlines(), strict=True)] == [True] * 3


def test_all_columns_and_all_strings_can_be_looked_at(tables, capsys):
    pq = pytest.importorskip("pyarrow.parquet")
    mapping = ["--mapping", "{}/mapping.jsonl"]
    assert redact(tables, "{}/in", "-o", "{}/out", "--columns", "*", "--json", *mapping) == 2
    report = json.loads(capsys.readouterr().out)
    assert report["unseen"] == {f"{tables}/in/c.parquet": ["tags"]}  # lists of Parquet are not redacted
    assert report["redacted"] == {"email address": 4, "phone number": 1}
    lines = (tables / "out" / "a.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {
            "text": "x",
            "id": 7,
            "to": {"mail": "[EMAIL_ADDRESS_1]", "n": [1, None]},
            "cc": ["", "[EMAIL_ADDRESS_2]"],
        },
        {"text": None, "to": None, "cc": [[{"k": "[PHONE_NUMBER_1]"}]]},
    ]
    assert (tables / "out" / "b.csv").read_text() == "id,text,mail,empty\n7,x,[EMAIL_ADDRESS_1],\n"
    assert redact(tables, "--restore", "{}/mapping.jsonl", "{}/out", "-o", "{}/again") == 0
    for name in ("a.jsonl", "b.csv"):
        assert (tables / "again" / name).read_bytes() == (tables / "in" / name).read_bytes()
    assert pq.read_table(tables / "again" / "c.parquet").equals(pq.read_table(tables / "in" / "c.parquet"))


def test_columns_that_need_no_look_are_kept(tables, capsys):
    kept = ["--columns", "*", "--keep-columns", "id,tags,mail"]
    assert redact(tables, "{}/in", "-o", "{}/out", *kept, "--json") == 0
    assert json.loads(capsys.readouterr().out)["unseen"] == {}
    assert (tables / "out" / "b.csv").read_bytes() == (tables / "in" / "b.csv").read_bytes()
    assert "bob@" not in (tables / "out" / "a.jsonl").read_text()  # `mail` is no member of the record


def test_a_file_of_another_format_is_named_and_is_code_2(folder, capsys):
    (folder / "in" / "letter.odt").write_text("bob@example.org")
    (folder / "in" / "b.jsonl").unlink()
    for mode in (["--check"], ["-o", "{}/out"]):
        assert redact(folder, "{}/in", *mode) == 2
        assert f"skipped (hidden, a linked folder, or not a readable format): {folder}/in/letter.odt" in (
            capsys.readouterr().out
        )


def test_texts_in_another_language_are_named_and_are_code_2(folder, capsys, commands_call):
    commands_call(lambda *_: client(MemoryReplica(replace(INFO, languages=["en"]))))
    (folder / "in" / "b.jsonl").write_text('{"text": "привет, как дела?"}\n{"text": "ok"}\n{"text": "что нового?"}\n')
    for mode in (["--check", "--labels", "person", "--no-patterns"], ["-o", f"{folder}/out", "--labels", "person"]):
        assert cli.main(["redact", f"{folder}/in", *mode, "--json"]) == 2
        written = capsys.readouterr()
        ((path, reasons),) = json.loads(written.out)["warnings"].items()
        ((message, number),) = reasons.items()
        assert (path, number, "Cyrillic" in message) == (f"{folder}/in/b.jsonl", 2, True)
        assert written.err == f"gliner-bento: redact: {path}: 2 texts: {message}\n"


def test_with_labels_the_model_checks_too(folder, capsys, commands_call):
    asked = []

    async def answer(request):
        body = json.loads(request.content)
        asked.append(body["labels"])
        entities = [{"start": 0, "end": 5, "text": "Write", "label": "verb", "score": 1}]
        results = [
            {"result": {"entities": entities if one["text"].startswith("Write") else []}} for one in body["items"]
        ]
        return httpx.Response(200, json={"results": results, "model": "m", "request_id": "r"})

    commands_call(lambda *_: AsyncClient("http://test", transport=httpx.MockTransport(answer)))
    assert redact(folder, "--check", "{}/in", "--labels", "verb", "--no-patterns", "--keep-columns", "note") == 3
    assert capsys.readouterr().out == f"{folder}/in/a.txt:1: verb: Write\n1 match of the recognizers and the model\n"
    assert asked == [["verb"]]
    assert redact(folder, "--check", "{}/in", "--no-patterns") == 1
    assert "--no-patterns leaves nothing to look for" in capsys.readouterr().err
    arguments = ["-o", str(folder / "out"), "--labels", "verb", "--check", "--keep-columns", "note"]
    assert cli.main(["redact", str(folder / "in"), *arguments]) == 0
    assert capsys.readouterr().out.startswith("0 matches")
    assert (folder / "out" / "a.txt").read_text().startswith("[VERB_1] to [EMAIL_ADDRESS_1]")


def test_many_files_are_open_at_a_time_but_not_too_many(tmp_path, commands_call):
    """With a server that answers later, under the usual limit of 1,024 open files."""

    async def answer(request):
        await asyncio.sleep(1)
        entities = [{"start": 0, "end": 4, "text": "Oslo", "label": "city", "score": 1}]
        results = [{"result": {"entities": entities}} for _ in json.loads(request.content)["items"]]
        return httpx.Response(200, json={"results": results, "model": "m", "request_id": "r"})

    commands_call(lambda *_: AsyncClient("http://test", transport=httpx.MockTransport(answer)))
    (tmp_path / "in").mkdir()
    for number in range(600):
        (tmp_path / "in" / f"{number}.txt").write_text("Oslo")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
    try:
        code = cli.main(["redact", str(tmp_path / "in"), "-o", str(tmp_path / "out"), "--labels", "city"])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert code == 0
    assert {path.read_text() for path in (tmp_path / "out").iterdir()} == {"[CITY_1]"}


def test_sigterm_leaves_no_half_written_copy(folder, commands_call):
    async def never(_):
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(60)

    commands_call(lambda *_: AsyncClient("http://test", transport=httpx.MockTransport(never)))
    before = signal.signal(signal.SIGTERM, lambda *_: pytest.fail("not handled"))
    try:
        with pytest.raises(SystemExit, match="143"):
            cli.main(["redact", str(folder / "in"), "-o", str(folder / "out"), "--labels", "person"])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert list((folder / "out").iterdir()) == []


@pytest.mark.parametrize("output", [[], ["-o", "-"]])
def test_standard_input_goes_to_standard_output(folder, monkeypatch, capsysbinary, output):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert redact(folder, "-", *output) == 0
    written = capsysbinary.readouterr()
    assert written.out == b"Write to [EMAIL_ADDRESS_1], or [EMAIL_ADDRESS_1].\r\n"
    assert written.err == b"1 file: 2 email address\n"


def test_standard_input_has_no_other_name(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert cli.main(["redact", "-", "--check"]) == 3
    assert capsys.readouterr().out.startswith("-:1: email address: ada@example.org\n-:1: email address: ")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"{")))
    assert redact("", "-", "--format", "jsonl") == 2
    assert capsys.readouterr().err.startswith("gliner-bento: redact: -: line 1: ")


def test_what_is_not_looked_at_in_standard_input_is_named(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"text": "x", "to": "ada@example.org"}')))
    assert redact("", "-", "--format", "jsonl") == 2
    assert "gliner-bento: redact: -: not looked at: 'to'; " in capsys.readouterr().err


def test_records_are_counted_without_headers_whether_checked_or_copied(folder, capsys):
    (folder / "in" / "c.csv").write_text("text\nbob@example.org\n")
    for arguments in (["--check"], ["-o", "{}/out", "--patterns-only"]):
        cli.main(["redact", f"{folder}/in", *(word.format(folder) for word in arguments), "--json"])
        report = json.loads(capsys.readouterr().out)
        assert (report["files"], report["records"]) == (3, 3)


def test_two_files_of_one_name_can_be_checked(folder):
    (folder / "sub").mkdir()
    (folder / "sub" / "a.txt").write_text("nothing")
    assert redact(folder, "--check", "{}/sub", "{}/sub/a.txt") == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--threshold", "7"], "threshold: Input should be less"), (["--labels", ","], "--labels: has no names")],
)
def test_options_with_which_every_text_would_fail_are_refused_first(folder, capsys, arguments, message):
    assert cli.main(["redact", f"{folder}/in", "-o", f"{folder}/out", *arguments]) == 1
    assert message in capsys.readouterr().err
    assert not (folder / "out").exists()


def test_a_file_that_fails_is_one_line_and_code_2(folder, capsys):
    (folder / "in" / "c.txt").write_bytes(b"\xff\xff")
    assert redact(folder, "{}/in", "-o", "{}/out") == 2
    assert f"redact: {folder}/in/c.txt: not utf-8" in capsys.readouterr().err
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["a.txt", "b.jsonl"]


@pytest.mark.parametrize(
    ("name", "broken", "place"),
    [("b.jsonl", '{"text": "bob@example.org\n', "b.jsonl: line 2"), ("b.csv", "x,bob@example.org\n", "b.csv: line 3")],
)
def test_an_invalid_line_is_left_out_of_the_copy_where_that_is_asked(folder, capsys, name, broken, place):
    header, line = ("", '{"text": "ok"}\n') if name == "b.jsonl" else ("text\n", "ok\n")
    (folder / "in" / name).write_text(f"{header}{line}{broken}{line}")
    assert redact(folder, "{}/in", "-o", "{}/out") == 2
    assert not (folder / "out" / name).exists()
    assert redact(folder, "{}/in", "-o", "{}/out", "--skip-invalid") == 2
    assert f"gliner-bento: redact: {folder}/in/{place}: " in capsys.readouterr().err
    assert (folder / "out" / name).read_text() == f"{header}{line}{line}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{}/in"], "redact: -o is required"),
        (["{}/gone", "-o", "{}/out"], "gone: no such file or folder"),
        (["{}/empty", "--check"], "empty: no files to read"),
        (["{}/in", "-o", "{}/out", "--columns", ","], "redact: --columns: has no names"),
        (["{}/in", "-o", "{}/out", "--keep-columns", "text"], "redact: --keep-columns: text is also in --columns"),
        (["{}/in", "-o", "{}/out", "--keep-columns", ","], "redact: --keep-columns: has no names"),
        (["{}/in", "-o", "{}/in/out"], "is inside the input"),
        (["{}/in", "-o", "{}/out", "--encoding", "nope"], "argument --encoding: unknown encoding: nope"),
        (["{}/in", "-o", "{}/out", "--encoding", "undefined"], "argument --encoding: unknown encoding: undefined"),
        (
            ["{}/in", "-o", "{}/out", "--style", "hash"],
            "GLINER_CLIENT_REDACT_KEY must have a key",
        ),
        (["{}/in", "-o", "{}/out", "--relations", "a"], "redact: --relations: only entities are redacted"),
        (["{}/in", "-", "-o", "{}/out"], "redact: -: must be the only input"),
        (["{}/in", "-o", "-"], "redact: -o -: only for standard input"),
        (["{}/in", "-o", "{}/out", "--no-patterns"], "not allowed with argument"),
        (["{}/in/a.txt", "-o", "{}/o.txt", "--mapping", "{}/o.txt"], "o.txt: would be written twice"),
        (["{}/in/a.txt", "-o", "{}/o.txt", "--mapping", "{}/in/a.txt"], "in/a.txt: is an input"),
        (["{}/in/a.txt", "-o", "{}/o.txt", "--restore", "{}/brackets"], "redact: line 1: not a line of a mapping"),
        (["{}/in/a.txt", "-o", "{}/hard.txt", "--restore", "{}/mapping"], "hard.txt: is an input"),
    ],
)
def test_what_cannot_run_is_one_line_and_code_1(folder, capsys, monkeypatch, arguments, message):
    monkeypatch.delenv("GLINER_CLIENT_REDACT_KEY", raising=False)
    (folder / "mapping").write_text("{}")
    (folder / "brackets").write_text("[" * 100_000)
    (folder / "hard.txt").hardlink_to(folder / "mapping")
    assert redact(folder, *arguments) == 1
    written = capsys.readouterr().err
    assert message in written
    assert written.count("\n") == 1
    assert not (folder / "out").exists()
    assert (folder / "in" / "a.txt").read_bytes() == TEXT.encode()
    assert not (folder / "o.txt").exists()


def test_settings_choose_what_is_found_without_the_model(folder, capsys):
    (folder / "in" / "a.txt").write_text("ada@example.org, 4111 1111 1111 1111, 01.42.68.53.00")
    assert redact(folder, "{}/in/a.txt", "-o", "{}/a.txt", "--recognizers", "CREDIT_CARD,PHONE_NUMBER") == 0
    assert (folder / "a.txt").read_text() == "ada@example.org, [CREDIT_CARD_1], [PHONE_NUMBER_1]"
    assert redact(folder, "{}/in/a.txt", "-o", "{}/b.txt", "--recognizers", "CREDIT_CRD") == 1
    assert "no recognizer 'CREDIT_CRD'" in capsys.readouterr().err
    assert redact(folder, "{}/in/a.txt", "-o", "{}/b.txt", "--phone-regions", "ZZ") == 1
    assert "no region 'ZZ'" in capsys.readouterr().err
