"""What the settings mean under Ray Serve. Needs no Ray."""

from __future__ import annotations

from typing import Any

import pytest

from gliner_bento import asgi, cli
from gliner_bento.errors import install
from gliner_bento.process.instances import plan_instances
from gliner_bento.ray.options import (
    MEANINGLESS,
    MEANINGLESS_BEHIND_THE_PROXY,
    check,
    gateway_options,
    replica_options,
)
from gliner_bento.settings import Settings
from gliner_bento.settings.configuration import SettingsError


def options(has_gpus: bool = False, cores: int = 8, **settings: Any) -> dict[str, Any]:
    return replica_options(Settings(**settings), has_gpus=has_gpus, cores=cores)


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


def test_an_actor_that_ends_waits_longer_than_a_request_lasts():
    settings = Settings(request_timeout_s=77)
    for decided in (replica_options(settings, has_gpus=False), gateway_options(settings)):
        assert decided["graceful_shutdown_timeout_s"] > 77


def test_limits_are_those_of_the_settings():
    assert options(queue_capacity=500)["max_ongoing_requests"] == 500
    assert options(queue_capacity=1)["max_ongoing_requests"] >= 256
    assert gateway_options(Settings(max_connections=5))["max_ongoing_requests"] == 5


@pytest.mark.parametrize("name", [*MEANINGLESS, *MEANINGLESS_BEHIND_THE_PROXY])
def test_a_setting_without_a_meaning_is_refused(name):
    settings = Settings(**{name: {"cuda_devices": "0", "models": "one=owner/name"}.get(name, 1)})
    with pytest.raises(SettingsError, match=f"^{name}: has no effect with Ray"):
        check(settings, proxied=True)
    if name in MEANINGLESS_BEHIND_THE_PROXY:
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
    assert capsys.readouterr().err == f"gliner-bento: serve: ray is not installed; {install('ray')}\n"


def test_an_unknown_backend_is_refused(capsys):
    assert cli.main(["serve", "--backend", "rays"]) == 1
    assert "rays" in capsys.readouterr().err
