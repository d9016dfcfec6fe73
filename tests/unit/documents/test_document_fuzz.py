"""Mutated documents of each format: each is read, or refused in one line; the process neither hangs nor grows."""

from __future__ import annotations

import pytest

from reliability.document_fuzz import SEEDS, fault_of, fuzz_documents


@pytest.mark.slow
def test_mutated_documents_are_read_or_refused():
    findings = fuzz_documents(2000, seed=0)
    assert [target.name for target in findings.targets if not target.met] == [], findings.facts
    assert {name for name, count in findings.outcomes.items() if count["read"] > 100} == {*SEEDS}
    assert findings.peak_bytes > 0


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ("encrypted", None),
        ("damaged: KeyError: 'a'", None),
        ("takes longer than 10 s to read", "ended"),
        ("the parser has crashed", "ended"),
        ("needs too much memory", "ended"),
        ("damaged: a\nb", "message"),
        ("", "message"),
    ],
)
def test_what_is_a_fault(message, fault):
    assert fault_of(message) == fault
