"""What cannot be measured is told in its place, and costs nothing else."""

from __future__ import annotations

import sys

import pytest

from gliner_bento.benchmark import command, job, sections
from gliner_bento.benchmark.bench import DEMO, QUICK, Bench, environment
from gliner_bento.benchmark.job import NotMeasured
from gliner_bento.benchmark.labelled import f1, joined, paragraphs, sentences
from gliner_bento.benchmark.rows import Row
from gliner_bento.benchmark.server import running_server
from gliner_bento.benchmark.workload import word_count


@pytest.fixture
def bench(tmp_path):
    return Bench(QUICK, tmp_path, tmp_path)


def test_a_section_that_fails_or_lacks_a_package_leaves_the_others_their_rows(bench, monkeypatch):
    def lacks(*_):
        raise NotMeasured("ray is not installed")

    def fails(*_):
        raise ZeroDivisionError("oh")

    def works(_, section):
        return [Row(section, "speed", "requests/s", 1.0)]

    monkeypatch.setattr(sections, "SECTIONS", {"a": lacks, "b": fails, "c": works})
    kept = []
    sections.measure(bench, ["c", "b", "a"], lambda: kept.append(len(bench.rows)))
    assert [(row.section, row.note) for row in bench.rows[:2]] == [
        ("a", "not measured: ray is not installed"),
        ("b", "not measured: ZeroDivisionError('oh')"),
    ]
    assert bench.rows[2].ours == 1.0
    assert kept == [1, 2, 3]


def test_a_peer_whose_package_is_not_there_is_not_started(bench, monkeypatch):
    monkeypatch.setattr("gliner_bento.benchmark.bench.versions", dict.fromkeys)
    with pytest.raises(NotMeasured, match="ray is not installed"), bench.gliner_serve(DEMO, "float32"):
        pass


def test_texts_of_a_smaller_benchmark_begin_a_larger_one(bench):
    assert bench.bodies("ner", 6) == bench.bodies("ner", 12)[:6]


def test_a_row_that_there_is_not_is_an_error_that_names_those_there_are(tmp_path):
    with pytest.raises(ValueError, match=r"no row bf61; there are bf16, fp32, "):
        command.compare(tmp_path, ["bf16", "bf61"], quick=True)


def test_a_setting_that_there_is_not_is_not_measured():
    assert environment({"max_batch_size": 8})["GLINER_MAX_BATCH_SIZE"] == "8"
    with pytest.raises(NotMeasured, match="no setting warp_speed"):
        environment({"warp_speed": 9})


def test_a_job_that_lacks_a_package_says_which():
    with pytest.raises(NotMeasured, match=r"^fast_gliner is not installed$"):
        job.run("fast_gliner", model="", bodies=[], batch_sizes=[], seconds=0.0)


def test_a_job_runs_in_a_process_of_its_own():
    told = job.run("gemm", dtype="float32", threads=1, rows=64, inner=64, outer=64, seconds=0.05)
    assert told["flop_per_s"] > 1e6


def test_a_server_that_does_not_start_is_told_with_its_log(tmp_path):
    broken = [sys.executable, "-c", "raise SystemExit('out of order')"]
    with pytest.raises(RuntimeError, match="out of order"), running_server(broken, cwd=tmp_path, log=tmp_path / "log"):
        pass


def test_labelled_sentences_hold_the_entities_that_they_say():
    bodies, wanted = sentences(DEMO, 30)
    for body, spans in zip(bodies, wanted, strict=True):
        assert spans
        for start, end, label in spans:
            assert body["text"][start:end].strip() == body["text"][start:end] != ""
            assert label in body["labels"]
    exact = [{"entities": [{"start": s, "end": e, "label": label} for s, e, label in spans]} for spans in wanted]
    assert f1(exact, wanted) == 1.0
    assert f1([{"entities": []} for _ in wanted], wanted) == 0.0


def test_paragraphs_fit_the_bundled_model_and_ask_for_what_they_hold():
    texts, labels, wanted = paragraphs(DEMO, 20)
    assert len(texts) == 20
    assert 50 < min(map(word_count, texts)) <= max(map(word_count, texts)) < 200
    assert len(set(labels)) == 12
    assert len(wanted) == 20
    for text, spans in zip(texts, wanted, strict=True):
        assert {label for _, _, label in spans} <= set(labels)
        assert all(text[start:end].strip() == text[start:end] for start, end, _ in spans)
    # as if they stood in one text
    whole, second = joined(texts, wanted, "; "), len(texts[0]) + 2
    assert len(whole) == sum(map(len, wanted))
    assert {(start + second, end + second, label) for start, end, label in wanted[1]} <= whole
