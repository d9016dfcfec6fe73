"""What a model took for personal data, and can be some or not."""

from __future__ import annotations

import pytest

from gliner_bento.privacy.plausible import is_plausible

PLAUSIBLE = {
    "date": "14 May|May 3|3/14/2024|1990-05-17|3 mars 1984|23.04.1979|April 3, 2023|June 2015|3rd of May|7月3日|3. Mai|"
    "día 12 de marzo de 1985|día 12 de marzo|Tag 12.03.1985|l'an 1985|12/03/1985 10 hr|March 3, 1985, 40 years|"
    "12/03/1985 - 10 hr|12.03.1985-10 hr|12.03.1985 an der Elbe|May 1985-10 hr|2 days after May 3|"
    "一九八五年三月十二日|三月",
    "street address": "14 Harbour Road|Linden Str. 5|北京市朝阳区建国路88号|芝公園四丁目|"
    "Blk 214 Serangoon Avenue 4 #08-112",
    "person": "Dr. Voss|Mrs Dalloway|Ng|Dr",
    "city": "Leeds|a",
}
IMPLAUSIBLE = {
    "date": "two days|last Monday|day 2|5 days ago|71|9 am|14:30|6 weeks|every 4 hours|40 %|Friday|3 Wochen|24-hour|"
    "10 bis 12 Tage|1.5-2.5 hours|2 years and 3 months|1200 days|1,200,000 years|T-5 days|19850 days|"
    "week 12|día 3|5 to 7 days",
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
