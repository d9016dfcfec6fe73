"""Labels that are read and not returned: the answer is that of all labels, without the entities of these."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gliner_bento.tasks.extraction import Entity, Extraction, Relation, RelationArgument
from gliner_bento.tasks.labels import WithoutDecoys

TEXT = "abcdefghij"
LABELS = ["a", "b", "c"]


@st.composite
def extractions(draw):
    labels = draw(st.lists(st.sampled_from(LABELS), max_size=8))
    entities = [Entity(at, at + 1, TEXT[at], label, 0.9) for at, label in enumerate(labels)]
    ends = [RelationArgument(None, 8, 9, "i", None)]
    ends += [RelationArgument(at, one.start, one.end, one.text, one.label) for at, one in enumerate(entities)]
    pairs = draw(st.lists(st.tuples(st.sampled_from(ends), st.sampled_from(ends)), max_size=6))
    return Extraction(entities, [Relation("r", 0.5, *pair) for pair in pairs])


@given(extractions(), st.sets(st.sampled_from(LABELS)), st.integers(0, 8))
def test_what_is_left_is_the_answer_without_these_entities(result, decoys, streamed):
    """Also in a stream, whose last line refers to entities of earlier lines."""
    kept = [entity for entity in result.entities if entity.label not in decoys]
    place = {entity.start: index for index, entity in enumerate(kept)}
    expected = [
        replace(relation, **{
            side: replace(end, entity_idx=place[end.start]) if end.entity_idx is not None else end
            for side, end in (("head", relation.head), ("tail", relation.tail))
        })
        for relation in result.relations
        if not {relation.head.label, relation.tail.label} & decoys
    ]  # fmt: skip
    whole = WithoutDecoys(decoys).whole(result)
    assert (whole.entities, whole.relations) == (kept, expected)
    merger = WithoutDecoys(decoys)
    sent = merger.add(result.entities[:streamed])
    rest = merger.whole(result.rest(streamed))
    assert (sent + rest.entities, rest.relations) == (kept, expected)
