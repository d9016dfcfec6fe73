"""A GLiClass model behind every route: the clients of other servers, unmodified, get the scores of gliclass itself."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import patient
import pytest
from on_a_socket import on_a_socket

from gliner_bento.client import Client
from gliner_bento.errors import InvalidField
from gliner_bento.gateway.app import GatewayApp
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.process.in_process import in_process
from gliner_bento.replicas.local.replica import LocalReplica
from gliner_bento.settings import Settings
from gliner_bento.settings.configuration import PROJECT_ROOT

CONTRACT = str(PROJECT_ROOT / "tests" / "contract")
TEXT = "Bill Gates founded Microsoft in Redmond."
LABELS = ["person", "company", "city"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("gliclass")
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # transformers' DeBERTa scripts functions
        patch.syspath_prepend(CONTRACT)
        from gliclass_checkpoints import tiny_gliclass

        return tiny_gliclass(tmp_path_factory.mktemp("gliclass"), max_tokens=1024)


@pytest.fixture(scope="module")
def url(checkpoint: Path) -> Iterator[str]:
    settings = Settings(model=str(checkpoint), device="cpu", dtype="float32", tei_labels=tuple(LABELS))
    replica = LocalReplica.load(settings)
    app = GatewayApp(settings.view(GatewayOptions))
    app.bind(replica)
    with on_a_socket(app) as url:
        yield url
    replica.close()


@pytest.fixture(scope="module")
def scores(url: str) -> dict[str, float]:
    with Client(url) as client:
        classified = client.extract(TEXT, classifications={"c": {"labels": LABELS, "top_k": 3}}).classifications["c"]
    return {one.label: one.score for one in classified.labels}


def test_the_model_says_what_it_supports(url: str) -> None:
    with Client(url) as client:
        assert client.model().tasks == ["classifications"]
        with pytest.raises(InvalidField, match=r"labels: '.*' does not support the task entities"):
            client.extract(TEXT, ["person"])
        (last,) = client.extract_stream(TEXT, classifications={"c": LABELS})
        assert list(last.classifications) == ["c"]
        (one, *_) = client.extract_many([TEXT, ""], classifications={"c": LABELS})
        assert one.result.classifications["c"].labels


def test_hugging_faces_client_gets_the_scores(
    url: str, scores: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", False)  # the server is on this machine
    client = hub.InferenceClient(model=f"{url}/pipeline/zero-shot-classification", token="any")
    found = client.zero_shot_classification(TEXT, LABELS)
    assert {one.label: one.score for one in found} == pytest.approx(scores)
    assert [one.score for one in found] == sorted(scores.values(), reverse=True)
    alone = client.zero_shot_classification(TEXT, LABELS, multi_label=True, hypothesis_template="about {}")
    assert len(alone) == 3
    other = hub.InferenceClient(model=f"{url}/pipeline/token-classification")
    with pytest.raises(Exception, match="does not support the task entities"):
        other.token_classification(TEXT)


def test_gliner2s_client_gets_the_scores(url: str, scores: dict[str, float]) -> None:
    gliner2 = pytest.importorskip("gliner2.api_client")
    client = gliner2.GLiNER2API(api_key="any", api_base_url=url)
    best = max(scores, key=lambda label: scores[label])
    assert client.classify_text(TEXT, {"topic": LABELS}) == {"topic": best}
    several: dict[str, Any] = {"topic": LABELS, "tags": {"labels": LABELS, "multi_label": True, "cls_threshold": 0.0}}
    answer = client.classify_text(TEXT, several, include_confidence=True)
    assert answer["topic"] == {"label": best, "confidence": pytest.approx(scores[best])}
    assert [one["label"] for one in answer["tags"]] == LABELS
    schema = client.create_schema().classification("topic", LABELS)
    assert client.extract(TEXT, schema) == {"topic": best}
    assert client.batch_classify_text([TEXT, TEXT], {"topic": LABELS}) == [{"topic": best}] * 2
    assert client.classify_text_long(TEXT, {"topic": LABELS}) == {"topic": best}


def test_gliclass_serves_client_gets_the_scores(url: str, checkpoint: Path, scores: dict[str, float]) -> None:
    from gliclass import GLiClassModel, ZeroShotClassificationPipeline
    from gliclass.serve.client import GLiClassClient
    from transformers import AutoTokenizer

    call: Any = GLiClassClient(f"{url}/gliclass")
    best = max(scores, key=lambda label: scores[label])
    assert call(TEXT, LABELS, multi_label=False) == [{"label": best, "score": pytest.approx(scores[best])}]
    model, tokenizer = GLiClassModel.from_pretrained(checkpoint), AutoTokenizer.from_pretrained(checkpoint)
    pipeline = ZeroShotClassificationPipeline(model, tokenizer, device="cpu", progress_bar=False)
    prompt = "What is the text about?"
    expected = pipeline([TEXT, "Ada."], LABELS, threshold=0.0, classification_type="multi-label", prompt=prompt)
    answer = call([TEXT, "Ada."], LABELS, threshold=0.0, prompt=prompt)
    for given, own in zip(answer, expected, strict=True):
        assert [one["label"] for one in given] == [one["label"] for one in own] == LABELS
        assert [one["score"] for one in given] == pytest.approx([one["score"] for one in own], abs=1e-4)
    per_text = call([TEXT, "Ada."], [LABELS[:2], LABELS[1:]], threshold=0.0)
    assert [[one["label"] for one in given] for given in per_text] == [LABELS[:2], LABELS[1:]]
    for wrong in ({"examples": [{"text": "a", "labels": ["person"]}]}, {"labels": [["a"]]}, {"prompt": ["a"]}):
        refused = patient.post(f"{url}/gliclass", json={"texts": [TEXT, TEXT], "labels": LABELS, **wrong})
        assert (refused.status_code, refused.json()["error"].partition(":")[0]) == (400, next(iter(wrong)))


def test_the_guardrail_of_the_docs_runs(url: str) -> None:
    page = (PROJECT_ROOT / "docs" / "classification.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    program = program.replace("http://localhost:3000", url).replace('"threshold": 0.7', '"threshold": THRESHOLD')
    for threshold, verdict in (("0.0", ["injection", "secrets", "violence"]), ("1.0", "passes")):
        code = program.replace("THRESHOLD", threshold)
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PROJECT_ROOT)
        lines = ran.stdout.splitlines()
        assert len(lines) == 2
        for line in lines:
            assert line.endswith("passes") if verdict == "passes" else all(one in line for one in verdict)


def test_the_program_for_two_models_runs(checkpoint: Path) -> None:
    page = (PROJECT_ROOT / "docs" / "several-models.md").read_text(encoding="utf-8")
    program, _ = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (printed,) = re.findall(r"^It prints `(.*)`$", page, re.MULTILINE)
    checkpoints = {"pii": PROJECT_ROOT / "models" / "demo", "guard": checkpoint}
    settings = {name: Settings(model=str(path), device="cpu", dtype="float32") for name, path in checkpoints.items()}
    replicas = {name: LocalReplica.load(own) for name, own in settings.items()}
    app = GatewayApp(settings["pii"].view(GatewayOptions))
    app.bind(replicas)
    with on_a_socket(app) as url:
        for threshold, shown in ((1.0, printed), (0.0, "ValueError: refused: injection, secrets")):
            code = program.replace("http://localhost:3000", url).replace("0.7", str(threshold))
            ran = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=PROJECT_ROOT
            )
            assert (ran.stdout + ran.stderr).splitlines()[-1] == shown
    for replica in replicas.values():
        replica.close()


def test_the_documented_request_is_answered(url: str) -> None:

    page = (PROJECT_ROOT / "docs" / "classification.md").read_text(encoding="utf-8")
    (body,) = re.findall(r"-d '(\{.*?\})'\n", page, re.DOTALL)
    answer = patient.post(f"{url}/v1/extract", content=body, headers={"Content-Type": "application/json"}).json()
    (best,) = answer["classifications"]["sentiment"]["labels"]
    assert (best["label"] in ("positive", "negative"), answer["classifications"]["topics"]["merge"]) == (True, None)


def test_predict_gets_the_scores(url: str, scores: dict[str, float]) -> None:

    answer = patient.post(f"{url}/tei/predict", json={"inputs": [[TEXT]]}).json()
    assert {one["label"]: one["score"] for one in answer[0]} == pytest.approx(scores)


def test_a_prompt_is_no_jailbreak_or_one(url: str) -> None:

    def classified(labels: list[str]) -> float:
        asked = {"labels": labels, "top_k": 2}
        answer = patient.post(f"{url}/v1/extract", json={"text": TEXT, "classifications": {"jailbreak": asked}}).json()
        return {one["label"]: one["score"] for one in answer["classifications"]["jailbreak"]["labels"]}["jailbreak"]

    answer = patient.post(f"{url}/v1/classify", json={"input": TEXT}).json()
    probability = classified(["jailbreak", "benign"])
    assert answer == {"jailbreak": probability > 0.5, "score": pytest.approx(2 * probability - 1)}


def test_nemos_client_gets_the_decision(url: str) -> None:
    nemo = pytest.importorskip("nemoguardrails.library.jailbreak_detection.request", reason="needs nemoguardrails")
    expected = patient.post(f"{url}/v1/classify", json={"input": TEXT}).json()["jailbreak"]
    assert asyncio.run(nemo.jailbreak_nim_request(TEXT, f"{url}/v1", None, "classify")) is expected


def test_the_playground_classifies_what_is_typed(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PROJECT_ROOT / "tests" / "e2e")
    from chromium import chromium, executable

    if executable() is None:
        pytest.skip("Chromium is not installed")
    with chromium(tmp_path) as page:
        page.open(f"{url}/playground")
        page.wait("!document.getElementById('classify-field').hidden && document.getElementById('labels').hidden")
        page.click("#classify")
        page.type("tone: good, bad; topic: person, city")
        page.wait("document.querySelectorAll('#classes p').length === 2")
        shown = page.evaluate("[...document.querySelectorAll('#classes p')].map((line) => line.textContent)")
        assert re.fullmatch(r"tone: (good|bad) [01]\.\d\d", shown[0])
        assert shown[1].startswith("topic: ")


def test_it_is_served_without_a_socket(checkpoint: Path, scores: dict[str, float]) -> None:
    async def scene() -> Any:
        async with in_process(Settings(model=str(checkpoint), device="cpu", dtype="float32")) as client:
            return await client.extract(TEXT, classifications={"c": {"labels": LABELS, "top_k": 3}})

    found = asyncio.run(scene()).classifications["c"].labels
    assert {one.label: one.score for one in found} == scores
