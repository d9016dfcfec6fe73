"""Every flag, field and variable of gliner.serve, compared with gliner's own parser and dataclass."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import logging
import re
import runpy
from importlib.util import find_spec
from pathlib import Path

import pytest

from gliner_bento import cli
from gliner_bento.gateway.compat.gliner_serve import (
    GLiNERServeAdapterCache,
    GLiNERServeRequest,
    GLiNERServeResponse,
)
from gliner_bento.serve import GLiNERServeConfig
from gliner_bento.settings import PROJECT_ROOT, Settings, SettingsError
from gliner_bento.settings.gliner_serve import BY_FIELD, CHECKED, OPTIONS, without_effect

SAMPLES = {
    "model": "models/demo",
    "device": "cpu",
    "dtype": "fp16",
    "quantization": "int8",
    "num_gpus_per_replica": "0.5",
    "route_prefix": "/own",
    "ray_address": "auto",
    "polylora_disk_cache_dir": "/tmp/adapters",
    "polylora_max_disk_adapters": "7",
    "polylora_adapter_weight_modules": "query,value",
    "polylora_adapter_id_pattern": "^a+$",
    "precompiled_batch_sizes": "1,2",
    "max_labels": "-1",
}
"""A value of each option whose default would not do."""


def fields_of_the_page(where):
    """The fields that docs/migrate/gliner-serve.md explains."""
    page = (PROJECT_ROOT / "docs" / "migrate" / "gliner-serve.md").read_text(encoding="utf-8")
    return re.findall(rf"^\| {re.escape(where)} \| `(\w+)` \| \S", page, re.MULTILINE)


@pytest.fixture(scope="module")
def gliners_parser():
    """The parser that gliner's own command makes."""
    made = []

    def capture(parser: argparse.ArgumentParser, *_: object) -> None:
        made.append(parser)
        raise SystemExit

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", capture)
        patch.setattr(logging, "basicConfig", lambda **_: None)
        with pytest.raises(SystemExit):
            runpy.run_module("gliner.serve", run_name="__main__")
    return made[0]


def test_the_table_has_each_flag_of_gliners_parser_with_its_default(gliners_parser):
    theirs = {
        action.option_strings[0]: "required" if action.required else action.default
        for action in gliners_parser._actions
        if action.dest != "help"
    }
    assert {option.flag_name: option.default for option in OPTIONS if option.flag_name} == theirs


def test_the_configuration_has_the_fields_of_gliners_class_in_its_order():
    from gliner.serve.config import GLiNERServeConfig as Theirs

    theirs = dataclasses.fields(Theirs)
    assert [own.name for own in dataclasses.fields(GLiNERServeConfig)] == [field.name for field in theirs]
    defaults = {field.name: getattr(Theirs("m"), field.name) for field in theirs if field.name != "model"}
    table = {
        field: option.default if option.field_default == "as the flag" else option.field_default
        for field, option in BY_FIELD.items()
        if field != "model"
    }
    assert table == defaults


@pytest.mark.parametrize("option", [option for option in OPTIONS if option.flag_name], ids=lambda one: one.field)
def test_serve_takes_each_flag_of_gliners(executed, option, gliners_parser, monkeypatch):
    """It sets what the table says, and the line of an option without effect is written."""
    (action,) = (action for action in gliners_parser._actions if option.flag_name in action.option_strings)
    value = [] if action.nargs == 0 else [SAMPLES.get(option.field, str(option.default))]
    if option.field == "http_port":
        value = ["0"]
    backend = ["--backend", "ray"] if option.field == "ray_address" else []
    monkeypatch.setattr("gliner_bento.cli.serve.find_spec", lambda _: True)  # Ray is not installed everywhere
    monkeypatch.setenv("RAY_ADDRESS", "another")
    assert cli.main(["serve", "--port", "0", *backend, option.flag_name, *value]) == 0
    assert len(executed) == 1
    assert (executed[0][2]["RAY_ADDRESS"] == "auto") == bool(backend)
    if option.setting:
        variable = f"GLINER_{option.setting.upper()}"
        expected = "false" if option.flag_name == "--no-compile" else "true" if not value else value[0]
        assert executed[0][2][variable].endswith({"fp16": "float16"}.get(expected, expected))


def test_what_does_nothing_is_reported(executed, capsys):
    flags = [
        "--max-ongoing-requests",
        "9",
        "--no-polylora-use-triton-kernels",
        "--polylora-adapter-weight-modules",
        "a",
    ]
    assert cli.main(["serve", "--port", "0", *flags]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert "gliner-bento: max_ongoing_requests has no effect: all requests that wait are in one queue" in lines[0]


@pytest.mark.parametrize("option", CHECKED, ids=lambda one: one.field)
def test_gliners_own_default_never_ends_the_start(option):
    assert without_effect({option.field: option.default})


@pytest.mark.parametrize("option", [option for option in OPTIONS if option.setting], ids=lambda one: one.field)
def test_a_field_of_the_configuration_is_its_setting(option):
    sample = SAMPLES.get(option.field, "3")
    (own,) = (field for field in dataclasses.fields(GLiNERServeConfig) if field.name == option.field)
    current = getattr(GLiNERServeConfig("models/demo"), option.field)
    value: object = sample
    if isinstance(current, bool):
        value = not current
    elif isinstance(current, (int, float)) and option.field not in ("default_threshold", "default_relation_threshold"):
        value = type(current)(sample) if "fraction" not in option.field else 0.5
    elif isinstance(current, float):
        value = 0.25
    elif isinstance(current, list):
        value = [1, 32]
    given = GLiNERServeConfig(**{"model": "models/demo", own.name: value}).settings()
    assert option.setting in given
    assert getattr(Settings.load(given), option.setting) == getattr(
        Settings.load({option.setting: given[option.setting]}), option.setting
    )


def test_a_field_that_keeps_its_default_leaves_the_setting_to_the_environment(monkeypatch):
    monkeypatch.setenv("GLINER_MAX_BATCH_SIZE", "5")
    assert GLiNERServeConfig("models/demo").settings() == {"model": "models/demo"}
    assert Settings.load(GLiNERServeConfig("models/demo").settings()).max_batch_size == 5


def test_the_largest_batch_is_warmed_up_as_in_gliner():
    assert GLiNERServeConfig("m", max_batch_size=48).precompiled_batch_sizes == [1, 2, 4, 8, 16, 32, 48]


def test_a_field_that_cannot_be_served_is_an_error():
    with pytest.raises(SettingsError, match="polylora_base_adapter_id: the id of the base model is __base__"):
        GLiNERServeConfig("models/demo", polylora_base_adapter_id="own").settings()
    with pytest.raises(ValueError, match="max_batch_size"):
        Settings.load(GLiNERServeConfig("models/demo", max_batch_size=0).settings())


def test_a_field_without_effect_is_logged(caplog):
    GLiNERServeConfig("models/demo", calibration_min_seq_len=9).settings()
    assert "calibration_min_seq_len has no effect: measured at start" in caplog.text


@pytest.mark.parametrize("option", [option for option in OPTIONS if option.variable], ids=lambda one: one.field)
def test_each_variable_of_its_container_is_the_setting(option, monkeypatch):
    current = Settings.load()
    sample = {"enable_compilation": "true", "default": "3"}.get(option.field, SAMPLES.get(option.field, "3"))
    if option.setting.startswith("enable_") and option.field != "enable_compilation":
        sample = str(not getattr(current, option.setting)).lower()
    sample = "0.5" if "fraction" in option.field else sample
    if option.field == "enable_compilation":
        current = Settings.load({"enable_compilation": "true"})
    monkeypatch.setenv(option.variable, sample)
    changed = getattr(Settings.load(), option.setting)
    assert option.field == "model" or changed != getattr(current, option.setting)


def gliners_source():
    return Path(find_spec("gliner").origin).with_name("serve").joinpath("server.py").read_text(encoding="utf-8")


def test_the_fields_of_a_request_are_those_that_gliners_server_reads_and_its_client_sends():
    from gliner.serve.client import GLiNERClient as Theirs

    sent = Theirs()._build_payload("a", ["b"], ["c"], 0.1, 0.2, True, False, "d")
    read = re.findall(r"payload(?:\[|\.get\()\"(\w+)\"", gliners_source())
    own_fields = set(GLiNERServeRequest.model_fields) - {"model"}  # a server of ours may have several
    assert set(sent) == set(read) == set(fields_of_the_page("`POST /gliner`")) == own_fields
    defaults = {name: one.default for name, one in inspect.signature(Theirs.predict).parameters.items()}
    own = GLiNERServeRequest(text="a", labels=["b"])
    assert {name: getattr(own, name) for name in sent.keys() - {"text", "labels"}} == {
        name: defaults[name] for name in sent.keys() - {"text", "labels"}
    }


def test_the_fields_of_the_answers_are_those_of_gliners_server():
    """What is in them is compared with its server in tests/service."""
    body = gliners_source().partition("def adapter_cache_status")[2].partition("\n    def ")[0]
    theirs = re.findall(r"\"(\w+)\"(?::|\] =)", body)
    explained = fields_of_the_page("`GET /gliner/adapter-cache`")
    assert set(theirs) == set(explained) == set(GLiNERServeAdapterCache.model_fields)
    assert set(fields_of_the_page("its answer")) == set(GLiNERServeResponse.__annotations__)


CONTAINER_VARIABLES = {
    *("GLINER_MODEL", "GLINER_DEVICE", "GLINER_DTYPE", "GLINER_MAX_BATCH_SIZE", "GLINER_BATCH_WAIT_MS"),
    *("GLINER_MEMORY_FRACTION", "GLINER_NUM_REPLICAS", "GLINER_DISABLE_COMPILE", "GLINER_ENABLE_FLASHDEBERTA"),
    *("GLINER_ENABLE_PACKING", "GLINER_QUANTIZATION", "GLINER_ROUTE_PREFIX"),
}
"""What the entry point of gliner.serve's container reads; the wheel does not have it."""


def test_the_table_has_each_variable_of_its_container():
    assert {option.variable for option in OPTIONS if option.variable} == CONTAINER_VARIABLES
