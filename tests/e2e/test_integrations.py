"""The client in other libraries, each of which is an extra: `make test-all` installs them."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec

import pytest
from doubles.language_model import LanguageModel
from on_a_socket import on_a_socket

from gliner_bento.client import Client
from gliner_bento.errors import GLiNERBentoError
from gliner_bento.settings import PROJECT_ROOT

PAGE = (PROJECT_ROOT / "docs" / "api.md").read_text(encoding="utf-8").partition("\n## Other libraries\n")[2]
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
RECIPES = re.findall(
    r"```python\n(.*?)```", (PROJECT_ROOT / "docs" / "language-models.md").read_text(encoding="utf-8"), re.DOTALL
)
TEXTS = ["Bill Gates founded Microsoft in 1975.", None, "Tim Cook works at Apple."]
LABELS = ["person", "organization"]
NAMES = [["Bill Gates", "Microsoft"], [], ["Tim Cook", "Apple"]]


@pytest.mark.parametrize("code", [*EXAMPLES, *RECIPES])
def test_the_code_of_the_pages_is_python(code):
    compile(code, "docs", "exec")


@pytest.mark.slow
@pytest.mark.parametrize("code", EXAMPLES)
def test_the_code_of_the_page_runs_and_prints(run_example, code):
    skip_without_packages(code)
    assert re.search("Ada Lovelace|Bill Gates|Tim Cook|person", run_example(code))


def skip_without_packages(code: str) -> None:
    for name in re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE):
        if find_spec(name) is None:
            pytest.skip(f"{name} is not installed")


@pytest.mark.slow
@pytest.mark.parametrize("code", RECIPES)
def test_a_language_model_gets_placeholders_and_the_program_originals(run_example, code, monkeypatch):
    skip_without_packages(code)
    model = LanguageModel()
    with on_a_socket(model.app) as url:
        for name in ("OPENAI_BASE_URL", "OPENAI_API_BASE"):
            monkeypatch.setenv(name, f"{url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        printed = run_example(code)
    received = json.dumps(model.received)
    assert len(model.received) == 2
    assert received.count("[PERSON_1]") >= 2
    for value in ("Ada Lovelace", "ada@example.org"):
        assert value in printed
        assert value not in received
    assert "PERSON_" not in printed


@pytest.mark.slow
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_frame_has_the_entities_of_its_column(server, library):
    frames = pytest.importorskip(library)
    from gliner_bento.integrations.dataframes import add_extractions, entity_table

    frame = frames.DataFrame({"id": [7, 8, 9], "text": TEXTS})
    if library == "pandas":
        frame = frame.set_index("id", drop=False)
    with Client(server) as client:
        found = add_extractions(client, frame, LABELS, relations=["founded"])
        assert list(frame.columns) == ["id", "text"]
        assert [[one["text"] for one in row] for row in found["entities"].to_list()] == NAMES
        assert [one["relation"] for one in found["relations"].to_list()[0]] == ["founded"]
        assert found["error"].to_list() == [None] * 3
        refused = add_extractions(client, frame, LABELS, adapter_id="gone")
        assert [one.partition(":")[0] for one in refused["error"].to_list()] == ["adapter_not_found"] * 3
        assert entity_table(refused).shape == (0, 6)
        rows = entity_table(found)
        assert rows["row"].to_list() == ([7, 7, 9, 9] if library == "pandas" else [0, 0, 2, 2])
        assert rows["text"].to_list() == [*NAMES[0], *NAMES[2]]
        for wrong, message in [
            ({"column": "txt"}, "no column 'txt'; there are id, text"),
            ({"column": "id"}, "must be str"),
        ]:
            with pytest.raises(ValueError, match=message):
                add_extractions(client, frame, LABELS, **wrong)
        with pytest.raises(ValueError, match="entities, relations, error"):
            add_extractions(client, found, LABELS)
        with pytest.raises(TypeError, match="not dict"):
            add_extractions(client, {"text": []}, LABELS)


@pytest.mark.slow
def test_a_spacy_pipeline_has_the_component(server):
    spacy = pytest.importorskip("spacy")
    import gliner_bento.integrations.spacy  # noqa: F401

    nlp = spacy.blank("en")
    config = {"url": server, "labels": LABELS, "relations": ["founded"], "options": {"threshold": 0.4}}
    nlp.add_pipe("gliner_bento", config=config)
    docs = list(nlp.pipe([text or "" for text in TEXTS]))
    assert [[one.text for one in doc.ents] for doc in docs] == NAMES
    assert [doc._.relations[0].relation if doc._.relations else None for doc in docs] == ["founded", None, None]
    spans = docs[0].spans["gliner_bento"]
    assert [one.label_ for one in spans] == LABELS
    assert all(score > 0.4 for score in spans.attrs["scores"])
    assert [one.text for one in nlp(TEXTS[2]).ents] == NAMES[2]
    # An entity that ends inside a token.
    assert [one.text for one in nlp.get_pipe("gliner_bento")(nlp.make_doc("Apple-based Tim Cook-like")).ents]
    assert spacy.blank("en").from_config(nlp.config).get_pipe("gliner_bento")
    nlp.replace_pipe("gliner_bento", "gliner_bento", config={**config, "options": {"threshold": 2}})
    with pytest.raises(GLiNERBentoError, match="threshold"):
        list(nlp.pipe(["Tim Cook"]))


@pytest.mark.slow
def test_a_haystack_pipeline_has_the_component(server):
    haystack = pytest.importorskip("haystack")
    from gliner_bento.integrations.haystack import GLiNERExtractor

    pipeline = haystack.Pipeline()
    pipeline.add_component("entities", GLiNERExtractor(LABELS, url=server, options={"relations": ["founded"]}))
    pipeline = haystack.Pipeline.loads(pipeline.dumps(), allowed_modules=["gliner_bento.integrations.haystack"])
    documents = [haystack.Document(content=text, meta={"id": 1}) for text in TEXTS]
    found = pipeline.run({"entities": {"documents": documents}})["entities"]["documents"]
    assert [[one["text"] for one in document.meta["entities"]] for document in found] == NAMES
    assert [one["relation"] for one in found[0].meta["relations"]] == ["founded"]
    assert [(one.content, one.meta["id"], one.id) for one in found] == [(one.content, 1, one.id) for one in documents]
    assert documents[0].meta == {"id": 1}
    with pytest.raises(GLiNERBentoError, match="threshold"):
        GLiNERExtractor(LABELS, server, {"threshold": 2}).run(documents)
