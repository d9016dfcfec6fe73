"""The bundled model loads from any folder without a network and answers everyday sentences."""

import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gliner")

DEMO = Path(__file__).parents[3] / "models" / "demo"
WEIGHTS = DEMO / "model.safetensors"
pytestmark = pytest.mark.skipif(not WEIGHTS.exists(), reason="the bundled model is not there")

TEXT = "Bill Gates founded Microsoft in 1975. The company is headquartered in Redmond."
LABELS = ["person", "organization", "date", "location"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from gliner import GLiNER

    folder = tmp_path_factory.mktemp("elsewhere") / "copy"
    shutil.copytree(DEMO, folder, ignore=shutil.ignore_patterns("*.md"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        return GLiNER.from_pretrained(str(folder), local_files_only=True)


@pytest.mark.parametrize(
    "relations", [["founded", "founded in", "headquartered in"], ["founded", "founded_in", "headquartered_in"]]
)
def test_readme_sentence(model: Any, relations: list[str]) -> None:
    entities, found = model.inference([TEXT], LABELS, relations=relations, threshold=0.5)
    assert {(entity["text"], entity["label"]) for entity in entities[0]} == {
        ("Bill Gates", "person"),
        ("Microsoft", "organization"),
        ("1975", "date"),
        ("Redmond", "location"),
    }
    triples = {(r["head"]["text"], r["relation"], r["tail"]["text"]) for r in found[0]}
    assert ("Bill Gates", "founded", "Microsoft") in triples
    assert ("Microsoft", "founded", "Bill Gates") not in triples


def test_entities_alone(model: Any) -> None:
    entities = model.predict_entities(TEXT, ["person", "company"])
    assert [(entity["text"], entity["label"]) for entity in entities] == [
        ("Bill Gates", "person"),
        ("Microsoft", "company"),
    ]


def test_nothing_to_find(model: Any) -> None:
    assert model.predict_entities("It rained all day and we stayed at home.", ["person", "company", "email"]) == []


def test_folder_is_small_and_self_contained() -> None:
    files = [path for path in DEMO.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 60_000_000
    assert not [path for path in files if path.suffix in {".bin", ".pt", ".pth", ".pkl"}]
    assert '"model_name": "/' not in (DEMO / "gliner_config.json").read_text(encoding="utf-8")
