"""A section that cannot be measured says so in its row, and does not affect the rest."""

from __future__ import annotations

import sys

import pytest

from benchmark import job, sections
from benchmark.__main__ import compare
from benchmark.bench import DEMO, QUICK, Bench, environment
from benchmark.generated import word_count
from benchmark.job import NotMeasured
from benchmark.labelled import f1, joined_spans, paragraphs, sentences
from benchmark.rows import Row
from benchmark.server import running_server

pytestmark = pytest.mark.long


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


def test_a_baseline_whose_package_is_not_installed_is_not_started(bench, monkeypatch):
    monkeypatch.setattr("benchmark.bench.versions", dict.fromkeys)
    with pytest.raises(NotMeasured, match="ray is not installed"), bench.gliner_serve(DEMO, "float32"):
        pass


def test_texts_of_a_smaller_benchmark_begin_a_larger_one(bench):
    assert bench.bodies("ner", 6) == bench.bodies("ner", 12)[:6]


def test_an_unknown_row_is_an_error_that_names_the_known_ones(tmp_path):
    with pytest.raises(ValueError, match=r"no row bf61; there are bf16, fp32, "):
        compare(tmp_path, ["bf16", "bf61"], QUICK)


def test_an_unknown_setting_is_not_measured():
    assert environment({"max_batch_size": 8})["GLINER_MAX_BATCH_SIZE"] == "8"
    with pytest.raises(NotMeasured, match="no setting warp_speed"):
        environment({"warp_speed": 9})


def test_a_job_that_lacks_a_package_says_which():
    with pytest.raises(NotMeasured, match=r"^fast_gliner is not installed$"):
        job.run("fast_gliner", model="", bodies=[], batch_sizes=[], seconds=0.0)


def test_a_job_runs_in_a_process_of_its_own():
    with pytest.raises(NotMeasured, match="no CUDA device"):
        job.run("ours", {"CUDA_VISIBLE_DEVICES": ""}, what="device")


def test_a_server_that_does_not_start_is_an_error_with_its_log(tmp_path):
    broken = [sys.executable, "-c", "raise SystemExit('out of order')"]
    with pytest.raises(RuntimeError, match="out of order"), running_server(broken, cwd=tmp_path, log=tmp_path / "log"):
        pass


def test_labelled_sentences_contain_their_entities():
    bodies, wanted = sentences(30)
    for body, spans in zip(bodies, wanted, strict=True):
        assert spans
        for start, end, label in spans:
            assert body["text"][start:end].strip() == body["text"][start:end] != ""
            assert label in body["labels"]
    exact = [{"entities": [{"start": s, "end": e, "label": label} for s, e, label in spans]} for spans in wanted]
    assert f1(exact, wanted) == 1.0
    assert f1([{"entities": []} for _ in wanted], wanted) == 0.0


def test_paragraphs_fit_the_bundled_model_and_contain_their_labels():
    texts, labels, wanted = paragraphs(20)
    assert len(texts) == 20
    assert 50 < min(map(word_count, texts)) <= max(map(word_count, texts)) < 200
    assert len(set(labels)) == 12
    assert len(wanted) == 20
    for text, spans in zip(texts, wanted, strict=True):
        assert {label for _, _, label in spans} <= set(labels)
        assert all(text[start:end].strip() == text[start:end] for start, end, _ in spans)
    # as if they stood in one text
    whole, second = joined_spans(texts, wanted, "; "), len(texts[0]) + 2
    assert len(whole) == sum(map(len, wanted))
    assert {(start + second, end + second, label) for start, end, label in wanted[1]} <= whole
