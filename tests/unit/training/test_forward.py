"""The training forward pass computes what gliner computes."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("gliner")

DEMO = Path(__file__).parents[3] / "models" / "demo"
pytestmark = pytest.mark.skipif(not (DEMO / "model.safetensors").exists(), reason="the bundled model is not there")

WORDS = ["Halvorsen", "was", "founded", "by", "Ingrid", "Dahl", "in", "Bergen", ",", "Norway", "."]
LABELS = ["person", "company", "job title"]
RELATIONS = ["founded by", "based in"]


def test_logits_equal_gliners() -> None:
    from gliner import GLiNER

    from training.batching import Collator
    from training.model import FastForward
    from training.sampling import Example

    model = GLiNER.from_pretrained(str(DEMO), local_files_only=True).float().eval()
    spans = [(0, 0), (4, 5), (7, 7)]
    collator = Collator(model.data_processor.transformer_tokenizer, model.config)
    batch = collator.batch([Example(WORDS, LABELS, RELATIONS, spans=spans), Example(["Hello", "."], ["date"], [])])

    model.config.augment_data_prob = 0.0
    example = {"tokenized_text": WORDS, "ner": [], "relations": [], "ner_labels": LABELS, "rel_labels": RELATIONS}
    raw = model.data_processor.collate_raw_batch([example])
    inputs = model.data_processor.tokenize_and_prepare_labels(raw, prepare_labels=False)
    with torch.no_grad():
        entities, relations = FastForward(model.model).eval()(batch)
        expected = model.model(
            **{key: inputs[key] for key in ("input_ids", "attention_mask", "words_mask")},
            text_lengths=raw["seq_length"],
            span_idx=raw["span_idx"],
            span_mask=raw["span_mask"],
            threshold=-1.0,
        )
    for width in range(12):
        for start in range(len(WORDS) - width):
            ours, theirs = entities[0, width, start, : len(LABELS)], expected.logits[0, start, width]
            assert torch.allclose(ours, theirs, atol=1e-4)

    where = {tuple(span): i for i, span in enumerate(expected.entity_spans[0].tolist())}
    pairs = {
        tuple(pair): logits for pair, logits in zip(expected.rel_idx[0].tolist(), expected.rel_logits[0], strict=True)
    }
    for i, (head, tail) in enumerate([(h, t) for h in range(3) for t in range(3) if h != t]):
        theirs = pairs[where[spans[head]], where[spans[tail]]]
        assert torch.allclose(relations[i, : len(RELATIONS)], theirs, atol=1e-4)
