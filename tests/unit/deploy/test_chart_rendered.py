"""The chart as helm renders it: Kubernetes' schemas take it, the server takes its settings, and wrong values end it."""

from __future__ import annotations

import ast
import copy
import functools
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from manifests import VALUE_SETS, VERSIONS, errors, files_of, helm, of_kind, pod_of, rendered, tools, variables

from gliner_bento.settings import Settings
from gliner_bento.settings.configuration import PROJECT_ROOT
from gliner_bento.settings.names import env_name
from tools.pages import chart
from tools.pages.chart import ALERTS, CHART

pytestmark = pytest.mark.long

ALWAYS = {"Deployment", "Service"}
ACCOUNT = {"ServiceAccount"}
SEVERAL = ALWAYS | ACCOUNT | {"PodDisruptionBudget"}
KINDS = {
    "adapters": SEVERAL,
    "anonymous": ALWAYS | ACCOUNT,
    "api-keys": SEVERAL | {"Ingress"},
    "extended": SEVERAL,
    "gpu": SEVERAL,
    "hpa": SEVERAL | {"HorizontalPodAutoscaler", "ServiceMonitor"},
    "hub-model": SEVERAL | {"NetworkPolicy"},
    "keda": SEVERAL | {"ScaledObject", "ServiceMonitor", "PrometheusRule", "NetworkPolicy"},
    "minimal": ALWAYS,
    "model-volume": SEVERAL | {"NetworkPolicy"},
    "settings": ALWAYS | ACCOUNT | {"ConfigMap"},
    "several-models": SEVERAL,
    "strict": SEVERAL | {"NetworkPolicy"},
}
OPERATORS = {"ScaledObject", "ServiceMonitor", "PrometheusRule"}
"""Kinds that operators define; test_chart_operators.py checks them."""

GIVEN = "--set=allowAnonymous=true"
REFUSED = [
    ([], "apiKeys.existingSecret: the server does not start without API keys"),
    ([GIVEN, "--set=apiKeys.existingSecret=keys"], "allowAnonymous: contradicts"),
    (
        ["--set=apiKeys.existingSecret=keys", "--set=serviceMonitor.enabled=true"],
        "serviceMonitor.apiKeySecret.name: ",
    ),
    ([GIVEN, "--set=autoscaling.kind=keda"], "autoscaling.keda.prometheusAddress: "),
    ([GIVEN, "--set=autoscaling.kind=hpa,autoscaling.maxReplicas=1"], "autoscaling.maxReplicas: 1 is less than"),
    ([GIVEN, "--set=terminationGracePeriodSeconds=30"], "terminationGracePeriodSeconds: 30 kills the server"),
    ([GIVEN, "--set=settings.shutdown_timeout_s=40,terminationGracePeriodSeconds=45"], "ended, which takes"),
    ([GIVEN, "--set=adapters.store.emptyDir.medium=Memory"], "adapters.enabled: "),
    ([GIVEN, "--set=model.name=a,settings.models[0]=a=b"], "settings.models: contradicts model.name"),
    ([GIVEN, "--set=replicas=3"], "propert.* '?replicas'? (is )?not allowed"),
    ([GIVEN, "--set=settings.api_keys=x"], "settings.* '?api_keys'? (is )?not allowed"),
]


@pytest.mark.parametrize("value_set", VALUE_SETS)
def test_the_schemas_of_three_versions_take_what_is_rendered(value_set):
    documents = rendered(value_set)
    assert sorted(document["kind"] for document in documents) == sorted(KINDS[value_set])
    assert [error for one in documents if one["kind"] not in OPERATORS for error in errors(one)] == []


def test_the_schemas_refuse_a_misspelt_field_and_a_wrong_type():
    deployment = copy.deepcopy(of_kind("anonymous", "Deployment"))
    deployment["spec"]["template"]["spec"]["containers"][0]["imagePullPolcy"] = "Never"
    assert [error.partition(":")[0] for error in errors(deployment)] == list(VERSIONS)
    service = copy.deepcopy(of_kind("anonymous", "Service"))
    service["spec"]["ports"][0]["port"] = "http"
    assert len(errors(service)) == len(VERSIONS)


@pytest.mark.parametrize("value_set", VALUE_SETS)
def test_helm_finds_no_fault(value_set):
    ended = helm("lint", "--strict", str(CHART), *files_of(value_set))
    assert ended.returncode == 0, ended.stdout


def test_every_value_is_rendered_somewhere(tmp_path):
    """Switches (true or false) and the kind of autoscaling: `KINDS` shows what they do."""
    on: dict[str, Any] = {"apiKeys.existingSecret": "keys", "autoscaling.kind": "keda"}
    off: dict[str, Any] = {"allowAnonymous": True, "apiKeys.existingSecret": "", "autoscaling.kind": "none"}
    off |= {"image.digest": "", "serviceAccount.create": False}
    marks = {}
    for number, value in enumerate(chart.values(), start=900):
        if isinstance(value.default, bool):
            on[value.name] = value.name != "allowAnonymous"
        elif value.name not in on:
            mark = f"mark-{number}"
            kinds = {str: mark, dict: {mark: "x"}, list: [mark], int: number, type(None): 10 * number}
            on[value.name] = kinds[type(value.default)]
            marks[value.name] = str(on[value.name]) if isinstance(on[value.name], int) else mark
    on["autoscaling.keda.authentication"] = {"name": marks["autoscaling.keda.authentication"], "authModes": "bearer"}
    output = ""
    for number, given in enumerate((on, on | off)):
        nested: dict[str, Any] = {}
        for name, one in given.items():
            *groups, key = name.split(".")
            functools.reduce(lambda place, group: place.setdefault(group, {}), groups, nested)[key] = one
        (tmp_path / f"{number}.yaml").write_text(yaml.safe_dump(nested))
        ended = helm(
            "template", "test", str(CHART), "--skip-schema-validation", "--values", str(tmp_path / f"{number}.yaml")
        )
        assert ended.returncode == 0, ended.stderr
        output += ended.stdout
    assert {name for name, mark in marks.items() if mark.upper() not in output.upper()} == set()


@pytest.mark.parametrize("value_set", VALUE_SETS)
def test_the_pod_has_time_to_end_and_no_rights(value_set):
    pod = pod_of(value_set)
    (server,) = pod["containers"]
    settings = {name: value for name, value in variables(server) if name.startswith("GLINER_")}
    shutdown_s = float(settings.get("GLINER_SHUTDOWN_TIMEOUT_S", Settings().shutdown_timeout_s))
    pre_stop_s = server["lifecycle"]["preStop"]["sleep"]["seconds"] if "lifecycle" in server else 0
    assert pod["terminationGracePeriodSeconds"] > pre_stop_s + shutdown_s
    assert pod["automountServiceAccountToken"] is pod["enableServiceLinks"] is False
    assert pod["securityContext"]["runAsNonRoot"]
    assert server["securityContext"]["readOnlyRootFilesystem"]
    assert server["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    mounts = {mount["name"]: mount for mount in server["volumeMounts"]}
    assert set(mounts) == {volume["name"] for volume in pod["volumes"]}
    writable = {name for name, mount in mounts.items() if not mount.get("readOnly")} - {"shared"}
    assert writable <= {"tmp", "cache", "adapter-store"}
    assert not any("subPath" in mount for mount in mounts.values())  # a changed Secret would not arrive


@pytest.mark.parametrize("value_set", VALUE_SETS)
def test_the_selectors_find_the_pods(value_set):
    labels = of_kind(value_set, "Deployment")["spec"]["template"]["metadata"]["labels"]
    for document in rendered(value_set):
        spec = document.get("spec", {})
        selector = spec.get("selector") or spec.get("podSelector") or {}
        selector = selector.get("matchLabels", selector)
        assert selector.items() <= labels.items()
        assert selector or document["kind"] not in {"Service", "NetworkPolicy", "PodDisruptionBudget", "Deployment"}
    (service_port,) = of_kind(value_set, "Service")["spec"]["ports"]
    (container_port,) = pod_of(value_set)["containers"][0]["ports"]
    assert service_port["targetPort"] == container_port["name"]


@pytest.mark.parametrize("value_set", VALUE_SETS)
def test_the_server_takes_the_settings(value_set, monkeypatch, tmp_path):
    (server,) = pod_of(value_set)["containers"]
    for mount in server["volumeMounts"]:
        (tmp_path / mount["mountPath"][1:]).mkdir(parents=True)
    for name in ("gliner-relex-large-v1.0", "general", "pii"):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "gliner_config.json").write_text("{}")
    for name in ("keys.yaml", "keys.json"):
        if (keys := tmp_path / "etc/gliner-bento/keys").exists():
            (keys / name).write_text("[]")
    if "ConfigMap" in KINDS[value_set]:
        content = of_kind(value_set, "ConfigMap")["data"]["configuration.yaml"]
        (tmp_path / "etc/gliner-bento/configuration/configuration.yaml").write_text(content)
    given = {name: value for name, value in variables(server) if name.startswith("GLINER_")}
    for name, value in given.items():
        monkeypatch.setenv(name, re.sub("^/|(?<==)/", f"{tmp_path}/", value))
    loaded = Settings.load()
    assert set(given) <= {env_name(name) for name in loaded.model_fields_set}
    if value_set == "several-models":
        assert loaded.models == (f"general={tmp_path}/models/general", f"pii={tmp_path}/models/pii")
    if value_set == "settings":
        assert loaded.max_body_bytes == 2**27
        assert loaded.precompiled_batch_sizes == (1, 8, 32)
        assert (loaded.request_timeout_s, loaded.batch_wait_timeout_ms) == (12.5, 1e-5)
        assert loaded.adapter_id_pattern == "^[a-z\"'\\\\-]{1,8}$"
        assert loaded.configuration().services["GLiNERService"] == {"workers": 2}


@pytest.mark.parametrize(("arguments", "reason"), REFUSED)
def test_values_that_cannot_work_are_refused_with_the_reason(arguments, reason):
    ended = helm("template", "test", str(CHART), *arguments)
    assert ended.returncode != 0
    assert re.search(reason, ended.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("value_set", VALUE_SETS)
def test_helm_3_renders_the_same(value_set):
    def by_name(documents):
        return sorted(json.dumps(document, sort_keys=True) for document in documents)

    assert by_name(rendered(value_set, "helm-3")) == by_name(rendered(value_set))


@pytest.mark.slow
def test_helm_3_refuses_the_same():
    assert helm("version", "--short", name="helm-3").stdout.startswith("v3.")
    for arguments, reason in REFUSED:
        assert re.search(reason, helm("template", "test", str(CHART), *arguments, name="helm-3").stderr)


def test_an_old_kubernetes_is_refused():
    ended = helm("template", "test", str(CHART), GIVEN, "--kube-version=1.29.0")
    assert "incompatible with Kubernetes v1.29.0" in ended.stderr


def test_with_an_autoscaler_the_deployment_leaves_the_number_of_pods_to_it():
    assert of_kind("anonymous", "Deployment")["spec"]["replicas"] == 1
    for value_set, kind in (("hpa", "HorizontalPodAutoscaler"), ("keda", "ScaledObject")):
        deployment = of_kind(value_set, "Deployment")
        assert "replicas" not in deployment["spec"]
        assert of_kind(value_set, kind)["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]


def test_changed_services_replace_the_pods():
    def annotations(workers):
        given = f"--set=services.GLiNERService.workers={workers}"
        documents = yaml.safe_load_all(helm("template", "test", str(CHART), GIVEN, given).stdout)
        (deployment,) = [one for one in documents if one["kind"] == "Deployment"]
        return deployment["spec"]["template"]["metadata"]["annotations"]

    assert annotations(1) == annotations(1) != annotations(2)


@pytest.mark.parametrize(("value_set", "shown"), [("anonymous", "Everyone who reaches"), ("api-keys", "Bearer $KEY")])
def test_the_notes_show_a_request_and_warn(value_set, shown):
    ended = helm("install", "test", str(CHART), "--dry-run=client", *files_of(value_set))
    notes = ended.stdout.partition("NOTES:")[2]
    assert "/v1/extract" in notes
    assert shown in notes


def test_the_rule_of_the_operator_has_the_alerts():
    assert of_kind("keda", "PrometheusRule")["spec"] == yaml.safe_load(ALERTS.read_text(encoding="utf-8"))


@pytest.mark.skipif(not shutil.which("promtool"), reason="needs promtool, which is in Debian's package prometheus")
def test_prometheus_accepts_the_operators_rule(tmp_path):
    (tmp_path / "alerts.yaml").write_text(yaml.safe_dump(of_kind("keda", "PrometheusRule")["spec"]))
    shutil.copy(ALERTS.with_name("alerts_test.yaml"), tmp_path)
    promtool("check", "rules", "alerts.yaml", folder=tmp_path)
    promtool("test", "rules", "alerts_test.yaml", folder=tmp_path)


@pytest.mark.skipif(not shutil.which("promtool"), reason="needs promtool, which is in Debian's package prometheus")
def test_the_query_of_keda_sums_fresh_samples_and_returns_nothing_for_stale_ones(tmp_path):
    (trigger,) = of_kind("keda", "ScaledObject")["spec"]["triggers"]
    assert trigger["metadata"]["ignoreNullValues"] == "false"  # nothing is an error, so that nothing is scaled down
    query = trigger["metadata"]["query"]
    ours = 'namespace="models",service="test-gliner-bento"'
    series = {
        f'gliner_waiting_tokens{{{ours},pod="a"}}': "4000x8",  # scraped every 15 s, for 2 minutes
        f'gliner_waiting_tokens{{{ours},pod="b"}}': "2000x8",
        'gliner_waiting_tokens{namespace="models",service="another",pod="c"}': "9000x40",
    }
    expected = {"1m": [6000], "2m30s": [6000], "3m30s": []}
    samples = {at: [{"labels": "{}", "value": value} for value in values] for at, values in expected.items()}
    test = {
        "interval": "15s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": query, "eval_time": at, "exp_samples": one} for at, one in samples.items()],
    }
    # Prometheus itself returns the last values for 5 minutes.
    test["promql_expr_test"].append(
        {
            "expr": f"sum(gliner_waiting_tokens{{{ours}}})",
            "eval_time": "3m30s",
            "exp_samples": [{"labels": "{}", "value": 6000}],
        }
    )
    (tmp_path / "test.yaml").write_text(yaml.safe_dump({"evaluation_interval": "15s", "tests": [test]}))
    promtool("test", "rules", "test.yaml", folder=tmp_path)


def promtool(*arguments: str, folder: Path) -> None:
    ended = subprocess.run(["promtool", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_example_of_kserve_has_fields_that_kserve_and_kubernetes_know():
    document = yaml.safe_load((PROJECT_ROOT / "deploy" / "kserve" / "inference-service.yaml").read_text("utf-8"))
    assert (document["apiVersion"], document["kind"]) == ("serving.kserve.io/v1beta1", "InferenceService")
    assert set(document["spec"]) <= fields_of("inference_service_spec")
    predictor = document["spec"]["predictor"]
    assert set(predictor) <= fields_of("predictor_spec")
    of_kserve = fields_of("component_extension_spec")
    assert of_kserve & set(predictor) == {"minReplicas", "timeout"}
    pod = {name: value for name, value in predictor.items() if name not in of_kserve}
    assert errors({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "predictor"}, "spec": pod}) == []
    (container,) = pod["containers"]
    (of_chart,) = json.loads(json.dumps(pod_of("keda")["containers"]).replace('"http"', "3000"))
    same = {"env", "resources", "startupProbe", "readinessProbe", "livenessProbe", "lifecycle", "securityContext"}
    assert {field for field in same | {"volumeMounts"} if container[field] != of_chart[field]} == set()


def fields_of(model: str) -> set[str]:
    """Names of the fields of a model in KServe's Python package, which is generated from its OpenAPI document."""
    tree = ast.parse((tools() / "kserve" / "models" / f"v1beta1_{model}.py").read_text(encoding="utf-8"))
    (found,) = [
        ast.literal_eval(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == "attribute_map"
    ]
    return set(found.values())
