"""docs/errors.md: a section for each code, under its status."""

from __future__ import annotations

import re

from gliner_bento.errors import ERRORS_BY_CODE
from gliner_bento.gateway.error_body import STATUSES
from gliner_bento.settings.configuration import PROJECT_ROOT

PAGE = (PROJECT_ROOT / "docs" / "errors.md").read_text(encoding="utf-8")


def test_every_error_code_has_a_section():
    sections = re.findall(r"^### `(\w+)`\n\n(.+)", PAGE, re.MULTILINE)
    assert {code for code, _ in sections} == {*ERRORS_BY_CODE, *STATUSES}
    assert len(sections) == len({code for code, _ in sections})


def test_the_table_has_every_code_with_its_status():
    rows = re.findall(r"^\| (\d{3}) \| (.+) \|$", PAGE, re.MULTILINE)
    shown = {code: int(status) for status, codes in rows for code in re.findall(r"`(\w+)`\]\(#\1\)", codes)}
    assert shown == dict(STATUSES)
