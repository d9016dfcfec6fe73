"""`gliner-bento serve --serving-properties FILE`: DJL Serving's keys become settings, or a line that names them."""

from __future__ import annotations

import re

import pytest

from gliner_bento import cli
from gliner_bento.cli.serving_properties import SETTINGS, read
from gliner_bento.settings import Settings
from gliner_bento.settings.configuration import PROJECT_ROOT, SettingsError

PAGE = PROJECT_ROOT / "docs" / "migrate" / "djl-serving.md"


@pytest.fixture
def properties(tmp_path):
    """Makes a file."""

    def write(*lines):
        file = tmp_path / "serving.properties"
        file.write_text("\n".join(lines), encoding="utf-8")
        return file

    return write


def test_keys_become_settings(properties):
    lines = [
        *("# of a model", "! another comment", "", "engine=Python"),
        *("option.model_id = urchade/gliner_small-v2.1", "option.dtype: fp32", "option.predict_timeout=20"),
        *("batch_size 8", "max_batch_delay=5", "job_queue_size=\\", "   77"),
    ]
    found = read(properties(*lines), {})
    assert found.settings == {
        "model": "urchade/gliner_small-v2.1",
        "dtype": "fp32",
        "request_timeout_s": "20",
        "max_batch_size": "8",
        "batch_wait_timeout_ms": "5",
        "queue_capacity": "77",
    }
    assert found.warnings == ["serving.properties: engine has no effect: there is only one"]
    settings = Settings.load(found.settings)
    assert (settings.max_batch_size, settings.queue_capacity, settings.request_timeout_s) == (8, 77, 20)


def test_backslashes_continue_lines_as_in_java(properties):
    lines = [
        *("# of C:\\", "batch_size=8"),
        *("option.model_id=models\\\\", "option.dtype=fp32"),
        *("job_queue_size=\\", "  # 7", "max_batch_delay=\\"),
    ]
    with pytest.raises(SettingsError, match="max_batch_delay: has no value"):
        read(properties(*lines), {})
    assert read(properties(*lines[:-1]), {}).settings == {
        "max_batch_size": "8",
        "model": "models\\",
        "dtype": "fp32",
        "queue_capacity": "# 7",
    }


@pytest.mark.parametrize(
    ("lines", "settings", "warned"),
    [
        (["load_on_devices=*"], {}, []),
        (["load_on_devices=-1"], {"device": "cpu"}, []),
        (["load_on_devices=1"], {"device": "cuda:1"}, []),
        (["load_on_devices=0;2"], {"device": "cuda", "cuda_devices": "0,2", "num_instances": "2"}, []),
        (
            ["load_on_devices=0;2", "gpu.maxWorkers=2"],
            {"device": "cuda", "cuda_devices": "0,2", "num_instances": "4"},
            [],
        ),
        (["minWorkers=2"], {"num_instances": "2"}, []),
        (["minWorkers=1", "maxWorkers=3"], {"num_instances": "3"}, ["minWorkers"]),
        (
            ["load_on_devices=-1", "cpu.maxWorkers=2", "gpu.maxWorkers=4"],
            {"device": "cpu", "num_instances": "2"},
            ["gpu.maxWorkers"],
        ),
        (["gpu.minWorkers=4"], {}, ["gpu.minWorkers"]),
        (["load_on_devices=*", "gpu.maxWorkers=4"], {}, ["gpu.maxWorkers"]),
        (
            ["reserved_memory_mb=500", "max_idle_time=60", "option.other=1"],
            {},
            ["reserved_memory_mb", "max_idle_time", "option.other"],
        ),
    ],
)
def test_devices_and_workers_become_replicas_and_what_does_nothing_is_named(properties, lines, settings, warned):
    found = read(properties(*lines), {})
    assert found.settings == settings
    assert [re.match(r"serving\.properties: (\S+) has no effect: ", line)[1] for line in found.warnings] == warned


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("load_on_devices=nc0", "load_on_devices: must be"),
        ("maxWorkers=0", "maxWorkers: must be a number from 1"),
        ("batch_size=", "batch_size: has no value"),
    ],
)
def test_a_wrong_value_names_the_file_and_the_key(properties, line, message):
    file = properties(line)
    with pytest.raises(SettingsError, match=re.escape(f"{file}: {message}")):
        read(file, {})


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(SettingsError, match=r"missing: No such file"):
        read(tmp_path / "missing", {})


def test_the_model_is_the_files_folder_if_that_is_a_checkpoint(properties, tmp_path):
    file = properties("batch_size=2")
    assert "model" not in read(file, {}).settings
    (tmp_path / "gliner_config.json").touch()
    assert read(file, {}).settings["model"] == str(tmp_path)


def test_flags_and_environment_override_the_file(executed, properties, monkeypatch, capsys):
    file = properties("batch_size=8", "job_queue_size=9", "max_batch_delay=3", "translatorFactory=x")
    monkeypatch.setenv("GLINER_QUEUE_CAPACITY", "70")
    command = ["serve", "--port", "0", "--serving-properties", str(file), "--max-batch-size", "16"]
    assert cli.main(command) == 0
    environment = executed[0][2]
    names = ("MAX_BATCH_SIZE", "QUEUE_CAPACITY", "BATCH_WAIT_TIMEOUT_MS")
    assert [environment[f"GLINER_{name}"] for name in names] == ["16", "70", "3.0"]
    assert capsys.readouterr().err == (
        "gliner-bento: serving.properties: translatorFactory has no effect: there are no translators\n"
    )


def test_the_page_lists_every_key():
    page = PAGE.read_text(encoding="utf-8")
    for key, setting in SETTINGS.items():
        (row,) = [line for line in page.splitlines() if line.startswith("|") and f"`{key}`" in line]
        assert f"`{setting}`" in row
