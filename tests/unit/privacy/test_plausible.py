"""What a model took for personal data, and can be some or not."""

from __future__ import annotations

import pytest

from gliner_bento.privacy.plausible import is_plausible

PLAUSIBLE = {
    "date": "14 May|May 3|3/14/2024|1990-05-17|3 mars 1984|23.04.1979|April 3, 2023|June 2015|3rd of May|7月3日|3. Mai",
    "street address": "14 Harbour Road|Linden Str. 5|北京市朝阳区建国路88号|Blk 214 Serangoon Avenue 4 #08-112",
    "person": "Dr. Voss|Mrs Dalloway|Ng|Dr",
    "city": "Leeds|a",
}
IMPLAUSIBLE = {
    "date": "two days|last Monday|day 2|5 days ago|71|9 am|14:30|6 weeks|every 4 hours|40 %|Friday|3 Wochen|24-hour",
    "street address": "BP 148/92|HR 88|71|building C",
    "person": "Mr.|Frau|dr.",
}


@pytest.mark.parametrize(("label", "texts"), PLAUSIBLE.items())
def test_what_can_be_personal_is_kept(label, texts):
    dropped = {"Dr"} if label == "person" else set()
    assert {text for text in texts.split("|") if not is_plausible(text, label)} == dropped


@pytest.mark.parametrize(("label", "texts"), IMPLAUSIBLE.items())
def test_what_cannot_be_personal_is_not(label, texts):
    assert [text for text in texts.split("|") if is_plausible(text, label)] == []
