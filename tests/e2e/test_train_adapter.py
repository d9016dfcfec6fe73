"""Training to serving: the example trains an adapter and puts it into a server, which answers as gliner does."""

from __future__ import annotations

import re
import runpy
import sys
import warnings
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from gliner import GLiNER
from observed import Observed
from peft import PeftModel

from gliner_bento.client import Client
from gliner_bento.settings import PROJECT_ROOT

SCRIPT = PROJECT_ROOT / "examples" / "train_adapter.py"
EXAMPLE = runpy.run_path(str(SCRIPT))
ASKED = EXAMPLE["ASKED"]
_RNG = Random(7)
HELD_OUT, WANTED = zip(*[EXAMPLE["write"](line, _RNG) for line in EXAMPLE["HELD_OUT"] * 6], strict=True)

Found = list[dict[tuple[int, int, str], float]]
"""For each text the score of each entity, by start, end and label."""


@dataclass(frozen=True)
class Trained:
    """A server that the script put its adapter into. printed: by the script. folder: the adapter."""

    url: str
    folder: Path
    printed: str


@pytest.fixture(scope="module")
def trained(observed: Observed, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("trained") / "adapter"
    printed = run("--out", str(folder), "--steps", "40", "--each", "8", "--url", observed.url, "--id", "often")
    return Trained(observed.url, folder, printed)


def run(*arguments: str) -> str:
    """The output of the script, in this process, with one thread: on a busy machine two wait for each other."""
    threads = torch.get_num_threads()
    with (
        pytest.MonkeyPatch.context() as patch,
        torch.random.fork_rng(),
        warnings.catch_warnings(),
        redirect_stdout(StringIO()) as printed,
    ):
        patch.setattr(sys, "argv", [str(SCRIPT), *arguments])
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        try:
            EXAMPLE["main"]()
        finally:
            torch.set_num_threads(threads)
    return printed.getvalue()


def served(url: str, texts: Sequence[str], adapter_id: str | None) -> Found:
    with Client(url) as client:
        batch = client.extract_batch(texts, ASKED, adapter_id=adapter_id)
    assert [one.error for one in batch.results if one.error] == []
    return [{(e.start, e.end, e.label): e.score for e in one.result.entities} for one in batch.results]


def by_gliner(gliner: Any, texts: Sequence[str]) -> Found:
    found, _ = gliner.inference(texts, ASKED, relations=[])
    return [{(e["start"], e["end"], e["label"]): e["score"] for e in entities} for entities in found]


def test_the_server_answers_as_gliner_does_with_the_adapter_merged_and_without_it_as_the_base_does(trained):
    texts = [*HELD_OUT[:15], *EXAMPLE["OTHER"]]
    gliner = GLiNER.from_pretrained(str(EXAMPLE["BASE"]), local_files_only=True)
    expected = {None: by_gliner(gliner, texts)}
    gliner.model = PeftModel.from_pretrained(gliner.model, str(trained.folder)).merge_and_unload()
    expected["often"] = by_gliner(gliner, texts)
    assert expected["often"] != expected[None]
    for adapter_id in ("often", None):
        answered = served(trained.url, texts, adapter_id)
        assert [list(spans) for spans in answered] == [list(spans) for spans in expected[adapter_id]]
        for spans, wanted in zip(answered, expected[adapter_id], strict=True):
            assert spans == pytest.approx(wanted, abs=1e-3)


def test_the_adapter_finds_the_new_label_in_sentences_that_are_new_to_it_and_the_base_does_not(trained):
    base, adapter = (EXAMPLE["f1"](served(trained.url, HELD_OUT, name), WANTED) for name in (None, "often"))
    assert base < 0.2
    assert adapter > 0.5


def test_the_script_prints_how_good_both_are_and_an_answer_of_each(trained):
    base, adapter = map(float, re.search(r"base (\d\.\d\d), adapter (\d\.\d\d)", trained.printed).groups())
    assert adapter > base + 0.4
    total, same = map(int, re.search(r"base's (\d+) answers the adapter gives (\d+)", trained.printed).groups())
    assert total >= same > total * 0.7
    shown = dict(line.split(": ", 1) for line in trained.printed.splitlines()[-2:])
    assert list(shown) == ["base", "often"]
    assert "every third evening = dosing frequency" in shown["often"]
    assert "every third evening = dosing frequency" not in shown["base"]
