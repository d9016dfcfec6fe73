"""The chart without helm: its generated files are fresh, and it names what exists in the server."""

from __future__ import annotations

import re

import jsonschema
import pytest
import yaml
from manifests import VALUE_SETS

from gliner_bento import __version__
from gliner_bento.gateway.app import GatewayApp
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.settings import Settings
from gliner_bento.settings.configuration import PROJECT_ROOT
from gliner_bento.settings.names import env_name
from gliner_bento.telemetry import metrics
from tools.pages import chart
from tools.pages.chart import CHART, DECIDED_BY_VALUES

TEMPLATES = {path.name: path.read_text(encoding="utf-8") for path in (CHART / "templates").iterdir()}
ALL_TEMPLATES = "\n".join(TEMPLATES.values())
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
SCHEMA = jsonschema.Draft7Validator(yaml.safe_load(chart.schema()))


def merged(defaults, given):
    """As helm merges values: null removes a default."""
    if not (isinstance(defaults, dict) and isinstance(given, dict)):
        return given
    both = defaults | {key: merged(defaults.get(key), value) for key, value in given.items()}
    return {key: value for key, value in both.items() if value is not None}


def faults(given):
    return sorted(f"{'.'.join(map(str, error.path))}: {error.message}" for error in SCHEMA.iter_errors(given))


def test_every_value_is_described():
    names = {value.name for value in chart.values()}
    leaves = {
        f"{group}.{key}" if isinstance(content, dict) and group not in names else group
        for group, content in DEFAULTS.items()
        for key in (content if isinstance(content, dict) else [""])
    }
    assert {leaf for leaf in leaves if not any(f"{name}.".startswith(f"{leaf}.") for name in names)} == set()
    assert [value.name for value in chart.values() if not value.description.endswith(".")] == []  # none is cut off


@pytest.mark.parametrize("value_set", VALUE_SETS)
def test_the_schema_takes_the_value_sets(value_set):
    given = yaml.safe_load((CHART / "ci" / f"{value_set}-values.yaml").read_text(encoding="utf-8"))
    assert faults(merged(DEFAULTS, given)) == []


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"replicas": 3}, "'replicas' was unexpected"),
        ({"image": {"repo": "x"}}, "image: .*'repo' was unexpected"),
        ({"settings": {"max_batch_sise": 3}}, "settings: .*'max_batch_sise' was unexpected"),
        ({"settings": {"api_keys": "x"}}, "settings: .*'api_keys' was unexpected"),
        ({"settings": {"max_batch_size": 0}}, r"settings\.max_batch_size: 0 is less than"),
        ({"settings": {"review_band": [0.35, 1.5]}}, r"settings\.review_band\.1: 1.5 is greater than"),
        ({"settings": {"precompiled_batch_sizes": [2.5]}}, r"settings\.precompiled_batch_sizes\.0: 2.5 is not of type"),
        ({"settings": {"dtype": "float12"}}, r"settings\.dtype: 'float12' is not one of"),
        ({"autoscaling": {"kind": "vpa"}}, r"autoscaling\.kind: 'vpa' is not one of"),
        ({"autoscaling": {"minReplicas": 0}}, r"autoscaling\.minReplicas: 0 is less than"),
        ({"image": {"digest": "latest"}}, r"image\.digest: 'latest' does not match"),
        ({"service": {"port": 70000}}, r"service\.port: 70000 is greater than"),
        ({"allowAnonymous": "yes"}, "allowAnonymous: 'yes' is not of type 'boolean'"),
    ],
)
def test_the_schema_refuses_other_values_and_names_them(given, fault):
    (found,) = faults(merged(DEFAULTS, given))
    assert re.search(fault, found)


def test_the_schema_has_every_setting_that_no_other_value_decides():
    in_schema = set(SCHEMA.schema["properties"]["settings"]["properties"])
    assert in_schema | set(DECIDED_BY_VALUES) == set(Settings.model_fields)
    assert not in_schema & set(DECIDED_BY_VALUES)
    names = {value.name for value in chart.values()}
    assert {name for name in DECIDED_BY_VALUES.values() if not any(one.startswith(name) for one in names)} == set()


def test_the_templates_set_variables_that_the_server_reads():
    by_cache = {"cache_dir", "conversion_cache_dir"}  # HF_HOME and XDG_CACHE_HOME
    assert set(re.findall(r"\bGLINER_[A-Z_]*[A-Z]\b", ALL_TEMPLATES)) == {
        env_name(name) for name in set(DECIDED_BY_VALUES) - by_cache
    }
    for name in by_cache:
        assert str(Settings.model_fields[name].default or "~/.cache").startswith("~/.cache")


def test_the_probes_are_routes_of_the_server():
    paths = set(re.findall(r"httpGet: \{path: (\S+),", TEMPLATES["deployment.yaml"]))
    app = GatewayApp(Settings().view(GatewayOptions))
    assert paths == {"/readyz", "/livez"} <= {endpoint.path for endpoint in app.endpoints if endpoint.scope is None}


def test_the_autoscalers_read_a_metric_of_the_server():
    gauges = {name for name, kind, _, _ in metrics.declared() if kind == "gauge"}
    for template in ("scaledobject.yaml", "horizontalpodautoscaler.yaml"):
        used = set(re.findall(r"gliner_\w+", TEMPLATES[template]))
        assert used
        assert used <= gauges


def test_the_chart_assumes_the_defaults_of_the_server():
    assert f"shutdown_timeout_s | default {Settings().shutdown_timeout_s:g} " in TEMPLATES["_helpers.tpl"]
    declared = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert declared["version"] == declared["appVersion"] == __version__
    gpu = yaml.safe_load((CHART / "values-gpu.yaml").read_text(encoding="utf-8"))
    assert gpu["image"]["tag"] == f"{__version__}-cuda"


def test_the_example_of_kserve_sets_variables_that_the_server_reads():
    text = (PROJECT_ROOT / "deploy" / "kserve" / "inference-service.yaml").read_text(encoding="utf-8")
    used = set(re.findall(r"\bGLINER_[A-Z_]+", text))
    assert used
    assert used <= {env_name(name) for name in Settings.model_fields}


def test_a_value_without_a_description_is_a_group():
    text = "# -- First.\na: {b: 1}\nc:\n  # -- Second.\n  d:\n    e: 1\n  # -- Third.\n  g: 3\n# -- Fourth.\nh: 4\n"
    assert list(chart._declared(text)) == [("a", "First."), ("c.d", "Second."), ("c.g", "Third."), ("h", "Fourth.")]
