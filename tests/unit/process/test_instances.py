"""The plan of a server's instances: names, devices, order, and what they share."""

from __future__ import annotations

from typing import Any

import pytest

from gliner_bento.process.instances import Instance, by_model, plan_instances, plan_or_exit
from gliner_bento.settings import Settings, SettingsError


def settings(**values: Any) -> Settings:
    return Settings.load(values)


def test_a_single_instance_is_the_plain_runner():
    assert plan_instances(settings()) == [Instance("GLiNERRunner")]


def test_several_instances_are_numbered_and_start_one_after_the_other():
    assert plan_instances(settings(num_instances=3)) == [
        Instance("GLiNERRunner1"),
        Instance("GLiNERRunner2", after="GLiNERRunner1"),
        Instance("GLiNERRunner3", after="GLiNERRunner2"),
    ]


def test_instances_take_the_devices_in_turn():
    plan = plan_instances(settings(num_instances=3, cuda_devices="0,GPU-5f", device="cuda"))
    assert [instance.cuda_device for instance in plan] == ["0", "GPU-5f", "0"]
    assert plan[1].environment == {"CUDA_VISIBLE_DEVICES": "GPU-5f"}


def test_a_single_instance_may_be_pinned_and_others_see_every_device():
    assert plan_instances(settings(cuda_devices="3"))[0].environment == {"CUDA_VISIBLE_DEVICES": "3"}
    assert plan_instances(settings())[0].environment == {}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"cuda_devices": "0,1"}, "cuda_devices: 2 devices for 1 instances; raise num_instances to 2"),
        ({"cuda_devices": "0", "device": "cpu"}, "cuda_devices: needs device cuda or auto, and device is cpu"),
        ({"cuda_devices": "0", "device": "cuda:1"}, "cuda_devices: needs device cuda or auto, and device is cuda:1"),
        ({"cuda_devices": "0,0", "num_instances": 2}, "cuda_devices: 0 is listed twice"),
        ({"cuda_devices": "0,/dev/1", "num_instances": 2}, "cuda_devices: String should match pattern"),
        ({"num_instances": 0}, "num_instances: Input should be greater than or equal to 1"),
        ({"num_instances": 65}, "num_instances: Input should be less than or equal to 64"),
    ],
)
def test_instances_that_cannot_be_are_refused_in_one_line(values, message):
    with pytest.raises(SettingsError) as caught:
        plan_instances(settings(**values))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_cores_are_divided_among_instances():
    decided = settings(num_instances=2).decided_for("cpu", cores=5)
    assert (decided.inference_lanes, decided.torch_threads) == (2, 1)
    alone = settings().decided_for("cpu", cores=5)
    assert (alone.inference_lanes, alone.torch_threads) == (4, 1)
    assert settings(num_instances=2, torch_threads=3).decided_for("cpu", cores=2).torch_threads == 3


def test_more_instances_than_cores_are_refused_on_cpu_only():
    with pytest.raises(SettingsError, match="3 instances need as many cores, and this process may use 2"):
        settings(num_instances=3).decided_for("cpu", cores=2)
    assert settings(num_instances=3).decided_for("cuda", cores=2).torch_threads == 1


@pytest.mark.parametrize(
    ("instances", "devices", "on_one"), [(1, "", 1), (4, "", 4), (4, "0,1", 2), (3, "0,1", 2), (2, "0,1", 1)]
)
def test_the_memory_of_a_gpu_is_divided_among_its_instances(instances, devices, on_one):
    values: dict[str, Any] = {"num_instances": instances, "target_memory_fraction": 0.8}
    values |= {"cuda_devices": devices} if devices else {}
    assert settings(**values).instances_per_device == on_one
    assert settings(**values).decided_for("cuda", cores=8).target_memory_fraction == pytest.approx(0.8 / on_one)


def test_the_app_of_one_process_refuses_several_instances(capsys):
    from gliner_bento.asgi import create_app

    with pytest.raises(SystemExit) as ended:
        create_app(settings(num_instances=2))
    assert ended.value.code == 1
    assert "num_instances: this app is one process" in capsys.readouterr().err


def test_a_plan_that_cannot_be_ends_the_process(capsys):
    with pytest.raises(SystemExit) as ended:
        plan_or_exit(settings(cuda_devices="0,1"))
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith("gliner-bento: cuda_devices: 2 devices")


def test_every_instance_holds_all_models(tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
        (folder / "gliner_config.json").touch()
    given = settings(models=f"one={folders[0]},two={folders[1]}", num_instances=2, target_memory_fraction=0.8)
    assert [(one.name, one.after) for one in plan_instances(given)] == [
        ("GLiNERRunner1", None),
        ("GLiNERRunner2", "GLiNERRunner1"),
    ]
    own = by_model(given)
    assert [(name, one.model, one.target_memory_fraction) for name, one in own.items()] == [
        ("one", str(folders[0]), 0.4),
        ("two", str(folders[1]), 0.4),
    ]
    assert list(by_model(settings())) == [None]
