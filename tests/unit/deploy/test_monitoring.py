"""The dashboard and the alert rules: they use metrics that exist, and Prometheus accepts them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest
import yaml

from gliner_bento.errors import ERRORS_BY_CODE
from gliner_bento.settings.configuration import PROJECT_ROOT
from gliner_bento.telemetry import metrics

DASHBOARD = PROJECT_ROOT / "deploy" / "grafana" / "dashboard.json"
ALERTS = PROJECT_ROOT / "deploy" / "prometheus" / "alerts.yaml"

SERIES = {
    series
    for name, kind, _, _ in metrics.declared()
    for series in ([f"{name}_{part}" for part in ("bucket", "sum", "count")] if kind == "histogram" else [name])
}
LABELS = {label for _, _, labels, _ in metrics.declared() for label in labels} | {"instance", "le", "alertstate"}


def expressions() -> Iterator[str]:
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]:
        yield from (rule["expr"] for rule in group["rules"])


@pytest.mark.parametrize("expression", list(expressions()))
def test_an_expression_uses_metrics_labels_and_codes_that_exist(expression):
    used = set(re.findall(r"gliner_\w+", expression))
    assert used
    assert used <= SERIES
    assert set(re.findall(r'(\w+)(?:=~|!~|!=|=)"', expression)) <= LABELS
    for codes in re.findall(r'code=~?"([^"]+)"', expression):
        assert set(codes.split("|")) <= set(ERRORS_BY_CODE)


def test_every_metric_is_on_the_dashboard_or_in_an_alert():
    shown = "\n".join(expressions())
    missing = {name for name, *_ in metrics.declared() if name not in shown}
    assert missing == {"gliner_unfinished_items", "gliner_model_info"}


def test_each_model_has_a_row_whose_panels_show_it_alone():
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    (row,) = [place for place, panel in enumerate(panels) if panel["type"] == "row"]
    assert panels[row]["repeat"] == "model"
    assert [panel["gridPos"]["y"] for panel in panels] == sorted(panel["gridPos"]["y"] for panel in panels)
    of_models = {name for name, _, labels, _ in metrics.declared() if "model" in labels} - {"gliner_model_state"}
    for place, panel in enumerate(panels):
        for target in panel.get("targets", ()):
            used = [name for name in re.findall(r"gliner_[a-z_]+?(?=_bucket|_sum|_count|{)", target["expr"])]
            assert {name in of_models for name in used} == {place > row}
            assert target["expr"].count('model=~"$model"') == (len(used) if place > row else 0)


def test_an_alert_says_how_grave_it_is_and_what_to_do():
    (group,) = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert set(rule["annotations"]) == {"summary", "action"}


@pytest.mark.skipif(not shutil.which("promtool"), reason="needs promtool, which is in Debian's package prometheus")
@pytest.mark.parametrize("arguments", [("check", "rules", "alerts.yaml"), ("test", "rules", "alerts_test.yaml")])
def test_prometheus_accepts_the_rules_and_they_fire_when_they_should(arguments):
    ended = subprocess.run(["promtool", *arguments], cwd=ALERTS.parent, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
