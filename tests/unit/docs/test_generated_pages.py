"""The tables and files that `make docs` generates."""

from __future__ import annotations

import pytest

from gliner_bento.settings import Settings
from tools import pages
from tools.docs_site.reference import settings_table


def test_a_page_is_written_and_checked(tmp_path, capsys):
    page = tmp_path / "settings.md"
    assert pages.write(page, "content", check=True) == 1
    assert pages.write(page, "content", check=False) == 0
    assert pages.write(page, "content", check=True) == 0
    page.write_text(page.read_text() + "edited\n")
    assert pages.write(page, "content", check=True) == 1
    assert "settings.md is stale: run `make docs`" in capsys.readouterr().err


def test_what_is_around_a_table_is_kept(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Before\n<!-- generated -->\n\nold\n\n<!-- end -->\nafter\n")
    page.write_text(pages.with_table(page, "| new |\n"))
    assert page.read_text() == "# Before\n<!-- generated -->\n\n| new |\n\n<!-- end -->\nafter\n"
    page.write_text("# Before\n<!-- generated -->\n")
    with pytest.raises(ValueError, match=r"page\.md: has no place for the generated table"):
        pages.with_table(page, "")


def test_the_settings_page_has_a_row_for_every_setting():
    table = settings_table()
    assert [row.split("`")[1] for row in table.splitlines()[2:]] == list(Settings.model_fields)
    assert " gliner.serve's name: `polylora_max_rank`. | " in table
    cells = {row.split("`")[1]: row.split(" | ")[2:] for row in table.splitlines()[2:]}
    assert cells["default_threshold"] == ["`0.5`", "at least 0, at most 1 |"]
    assert cells["enable_lora"] == ["`false`", "`true`, `false` |"]
    assert cells["adapter_root"] == ["unset", "path |"]
    assert cells["model"] == ["`models/demo`", "text |"]
    assert cells["precompiled_batch_sizes"][1] == "comma-separated integers, each at least 1, at most 4096 |"


def test_the_metrics_page_has_a_row_for_every_kind_of_metric():
    table = pages.metrics_table()
    assert "| `gliner_http_requests_total` | counter | `route`, `method`, `status` | Answered requests" in table
    assert "| `gliner_stage_seconds` | histogram | `model`, `stage` |" in table
    assert "| `gliner_adapters` | gauge | `model`, `tier` |" in table
