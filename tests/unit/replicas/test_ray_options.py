"""What the settings mean under Ray Serve. Needs no Ray."""

from __future__ import annotations

from typing import Any

import pytest

from gliner_bento import asgi, cli
from gliner_bento.errors import install_hint
from gliner_bento.process.instances import by_model, plan_instances
from gliner_bento.ray.options import check, gateway_options, replica_options, replica_settings
from gliner_bento.settings import Settings
from gliner_bento.settings.configuration import SettingsError
from gliner_bento.settings.marks import NoEffectWithRay, marked

WITHOUT_EFFECT = marked(Settings, NoEffectWithRay)

VALUES = {
    "cuda_devices": "0",
    "model_root": "/",
    "model_memory_fraction": 0.5,
    "evicted_models": "refuse",
    "probe_models": False,
}


def options(has_gpus: bool = False, cores: int = 8, models: int = 1, **settings: Any) -> dict[str, Any]:
    return replica_options(Settings(**settings), has_gpus=has_gpus, models=models, cores=cores)


def test_instances_are_replicas_that_divide_the_cores():
    decided = options(num_instances=3)
    assert decided["num_replicas"] == 3
    assert decided["ray_actor_options"] == {"num_cpus": 2, "num_gpus": 0}
    assert "autoscaling_config" not in decided


def test_max_instances_makes_them_follow_the_waiting_tokens():
    decided = options(num_instances=2, max_instances=8, target_waiting_tokens=77)
    scaling = decided["autoscaling_config"]
    assert (scaling["min_replicas"], scaling["max_replicas"]) == (2, 8)
    assert scaling["policy"]["policy_kwargs"] == {"target_waiting_tokens": 77}
    assert decided["ray_actor_options"]["num_cpus"] == 1
    assert "num_replicas" not in decided


@pytest.mark.parametrize(("device", "gpus"), [("auto", 1), ("cuda", 1), ("cpu", 0)])
def test_a_replica_has_a_gpu_of_its_own_where_there_are_some(device, gpus):
    assert options(has_gpus=True, device=device)["ray_actor_options"]["num_gpus"] == gpus


@pytest.mark.parametrize(
    ("models", "instances", "cores", "share"), [(2, 1, 8, 4), (2, 2, 8, 2), (2, 1, 2, 1), (2, 8, 2, 1), (3, 1, 2, 0.66)]
)
def test_models_divide_the_cores_and_each_finds_some(models, instances, cores, share):
    decided = options(models=models, cores=cores, num_instances=instances)
    assert decided["ray_actor_options"] == {"num_cpus": share, "num_gpus": 0}


def test_models_divide_a_gpu():
    assert options(has_gpus=True, models=3)["ray_actor_options"] == {"num_cpus": 1, "num_gpus": 0.33}


def test_the_replicas_of_a_model_have_its_settings_and_know_no_other_model():
    given = Settings(
        models="a=owner/name,b=owner/other",
        model_settings={"b": {"default": True, "queue_capacity": 500}, "a": {"target_memory_fraction": 0.2}},
        target_memory_fraction=0.8,
    )
    own = replica_settings(given)
    assert [(name, one.model, one.queue_capacity) for name, one in own.items()] == [
        ("b", "owner/other", 500),
        ("a", "owner/name", Settings().queue_capacity),
    ]
    in_their_processes = [by_model(one) for one in own.values()]
    assert [{name: one.target_memory_fraction for name, one in loaded.items()} for loaded in in_their_processes] == [
        {"b": 0.8},
        {"a": 0.2},
    ]
    assert replica_settings(Settings()) == {None: Settings()}


def test_an_actor_that_ends_waits_longer_than_a_request_lasts():
    settings = Settings(request_timeout_s=77)
    for decided in (replica_options(settings, has_gpus=False), gateway_options(settings)):
        assert decided["graceful_shutdown_timeout_s"] > 77


def test_limits_are_those_of_the_settings():
    assert options(queue_capacity=500)["max_ongoing_requests"] == 500
    assert options(queue_capacity=1)["max_ongoing_requests"] >= 256
    assert gateway_options(Settings(max_connections=5))["max_ongoing_requests"] == 5


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_a_setting_without_a_meaning_is_refused(name):
    settings = Settings(**{name: VALUES.get(name, 1)})
    with pytest.raises(SettingsError, match=f"^{name}: has no effect with Ray"):
        check(settings, proxied=True)
    if WITHOUT_EFFECT[name].proxied:
        check(settings, proxied=False)


def test_fewer_instances_at_most_than_at_least_are_refused():
    with pytest.raises(SettingsError, match=r"^max_instances: 2 is less than num_instances, which is 3"):
        check(Settings(num_instances=3, max_instances=2), proxied=False)


def test_without_ray_the_number_of_instances_is_fixed(capsys):
    with pytest.raises(SettingsError, match=r"^max_instances: needs Ray"):
        plan_instances(Settings(max_instances=2))
    with pytest.raises(SystemExit):
        asgi.create_app(Settings(max_instances=2))
    assert "max_instances: this app is one process" in capsys.readouterr().err


def test_without_ray_installed_the_command_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setattr("gliner_bento.cli.serve.find_spec", lambda name: None)
    assert cli.main(["serve", "--port", "0", "--backend", "ray"]) == 1
    assert capsys.readouterr().err == f"gliner-bento: serve: ray is not installed; {install_hint('ray')}\n"


def test_an_unknown_backend_is_refused(capsys):
    assert cli.main(["serve", "--backend", "rays"]) == 1
    assert "rays" in capsys.readouterr().err
