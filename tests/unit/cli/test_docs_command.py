"""`gliner-bento docs`: the generated pages."""

from __future__ import annotations

from gliner_bento.cli import docs
from gliner_bento.settings import Settings


def test_a_page_is_written_and_checked(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(docs, "PROJECT_ROOT", tmp_path)
    page = tmp_path / "settings.md"
    assert docs.write_page("content", page, check=True) == 1
    assert docs.write_page("content", page, check=False) == 0
    assert docs.write_page("content", page, check=True) == 0
    page.write_text(page.read_text() + "edited\n")
    assert docs.write_page("content", page, check=True) == 1
    assert "settings.md is stale: run `make docs`" in capsys.readouterr().err


def test_the_settings_page_has_a_row_for_every_setting():
    rows = [line for line in docs.settings_page().splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == list(Settings.model_fields)
    assert " gliner.serve's name: `polylora_max_rank`. |\n" in docs.settings_page()
    assert "| `default_threshold` | `0.5` | at least 0, at most 1 |" in docs.settings_page()
    assert "| `enable_lora` | `false` | `true`, `false` |" in docs.settings_page()
    assert "| `adapter_root` | unset | path |" in docs.settings_page()
    assert "| `model` | `models/demo` | text |" in docs.settings_page()
    assert "| comma-separated integers, each at least 1, at most 4096 |" in docs.settings_page()


def test_the_metrics_page_has_a_row_for_every_kind_of_metric():
    page = docs.metrics_page()
    assert "| `gliner_http_requests_total` | counter | `route`, `method`, `status` | Answered requests" in page
    assert "| `gliner_stage_seconds` | histogram | `stage` |" in page
    assert "| `gliner_adapters` | gauge | `tier` |" in page
