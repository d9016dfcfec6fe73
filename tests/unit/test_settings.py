"""Settings: precedence, names, bounds, and what is derived from them."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gliner_bento.adapters.base import AdapterSettings
from gliner_bento.engine.options import EngineOptions
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.process.bentoml_options import default_host
from gliner_bento.process.instances import by_model
from gliner_bento.scheduler.scheduler import SchedulerConfig
from gliner_bento.settings import Settings, SettingsError
from gliner_bento.settings.configuration import CONFIGURATION_FILE, PROJECT_ROOT, SERVICES
from gliner_bento.settings.cores import usable_cores
from gliner_bento.settings.field_types import FORMATS, text_of
from gliner_bento.settings.formats import FIELDS, FormatFields
from gliner_bento.settings.marks import FlagOfCommands, NoEffectWithRay, OfAllModels, OfOperator, PerModel, marked
from gliner_bento.settings.names import env_name, flag_name, origin
from gliner_bento.tasks.base import Limits
from tools.docs_site.reference import settings_table


@pytest.mark.parametrize(("container", "host"), [("", "127.0.0.1"), ("true", "0.0.0.0")])
def test_the_server_binds_loopback_by_default_and_a_container_all_addresses(monkeypatch, container, host):
    monkeypatch.setenv("BENTOML_CONTAINERIZED", container)
    assert default_host(Settings.load()) == host


def test_a_flag_wins_over_the_environment_over_the_file_over_the_default(monkeypatch, settings_file):
    assert Settings.load().max_batch_size == 32
    file = settings_file("gliner: {max_batch_size: 3}")
    assert Settings.load(file=file).max_batch_size == 3
    monkeypatch.setenv("GLINER_MAX_BATCH_SIZE", "5")
    assert Settings.load(file=file).max_batch_size == 5
    assert Settings.load({"max_batch_size": "7"}, file=file).max_batch_size == 7


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_every_setting_has_a_flag_and_an_environment_variable_and_a_line_of_help(name, monkeypatch):
    field = Settings.model_fields[name]
    assert field.description.endswith(".")
    assert "\n" not in field.description
    assert flag_name(name) == "--" + name.replace("_", "-")
    if field.default is not None:
        monkeypatch.setenv(env_name(name), text_of(field.default))
        assert getattr(Settings.load(), name) == getattr(Settings(), name)


@pytest.mark.parametrize("given", ["1,2,16", " 1, 2,16 "])
def test_batch_sizes_are_separated_by_commas(given, monkeypatch):
    monkeypatch.setenv("GLINER_PRECOMPILED_BATCH_SIZES", given)
    assert Settings.load().precompiled_batch_sizes == (1, 2, 16)
    assert Settings.load({"precompiled_batch_sizes": given}).precompiled_batch_sizes == (1, 2, 16)


def test_batch_sizes_may_be_a_list_in_the_file(settings_file):
    assert Settings.load(file=settings_file("gliner: {precompiled_batch_sizes: [1, 8]}")).precompiled_batch_sizes == (
        1,
        8,
    )


@pytest.mark.parametrize("given", ["1,,2", "two", "0"])
def test_wrong_batch_sizes_are_refused(given, monkeypatch):
    monkeypatch.setenv("GLINER_PRECOMPILED_BATCH_SIZES", given)
    with pytest.raises(SettingsError, match="precompiled_batch_sizes"):
        Settings.load()


def test_the_file_is_named_by_flag_or_environment(monkeypatch, settings_file):
    file = settings_file("gliner: {max_labels: 9}")
    assert Settings.load({"config": str(file)}).max_labels == 9
    monkeypatch.setenv("GLINER_CONFIG", str(file))
    assert Settings.load().max_labels == 9
    assert Settings.load().config == file


def test_a_file_in_the_working_directory_is_not_read(monkeypatch, tmp_path):
    (tmp_path / "configuration.yaml").write_text("gliner: {max_labels: 9}")
    monkeypatch.chdir(tmp_path)
    assert Settings.load().max_labels == 1000


def test_an_empty_environment_variable_counts_as_unset(monkeypatch):
    monkeypatch.setenv("GLINER_MAX_LABELS", "")
    assert Settings.load().max_labels == 1000
    assert origin("max_labels", {}) is None


def test_origin_names_the_flag_or_the_environment(monkeypatch):
    monkeypatch.setenv("GLINER_MAX_LABELS", "4")
    assert origin("max_labels", {}) == "GLINER_MAX_LABELS"
    assert origin("max_labels", {"max_labels": 5}) == "--max-labels"


def test_an_unknown_name_is_an_error_that_names_the_nearest(monkeypatch, settings_file):
    with pytest.raises(SettingsError, match="unknown setting max_batch_sise; did you mean max_batch_size"):
        Settings.load({"max_batch_sise": 3})
    with pytest.raises(SettingsError, match=r"own\.yaml: unknown setting max_label; did you mean max_labels"):
        Settings.load(file=settings_file("gliner: {max_label: 3}"))
    monkeypatch.setenv("GLINER_DEVISE", "cpu")
    with pytest.raises(SettingsError, match="unknown environment variable GLINER_DEVISE; did you mean GLINER_DEVICE"):
        Settings.load()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gliners: {}", "unknown section gliners; did you mean gliner"),
        ("services: {GlinerRunner: {}}", "unknown service GlinerRunner; did you mean GLiNERRunner"),
        ("services: {GLiNERRunner: {worker: 2}}", "GLiNERRunner: unknown key worker; did you mean workers"),
        ("services: {GLiNERRunner: {workers: 2}}", "GLiNERRunner: workers: must be 1"),
        ("services: {GLiNERService: {traffic: {max_concurrency: 1}}}", "max_concurrency: use queue_capacity"),
        ("services: {GLiNERService: {metrics: {enabled: true}}}", "metrics: BentoML's have a series per path"),
        ("gliner: {config: other.yaml}", "unknown setting config"),
        ("gliner: [max_labels]", "gliner: must be a mapping"),
        ("- gliner", "must be a mapping"),
        ("gliner: {max_labels: 0}", "max_labels: must be at least 1, or -1 for no limit .got 0 from the configuration"),
        ("gliner: {", "invalid YAML"),
        ("gliner: " + "[" * 1000, "invalid YAML"),
    ],
)
def test_a_wrong_file_is_one_line_that_says_what(settings_file, text, message):
    with pytest.raises(SettingsError, match=message) as caught:
        Settings.load(file=settings_file(text))
    assert "\n" not in str(caught.value)


def test_a_named_file_that_is_missing_is_an_error(tmp_path):
    with pytest.raises(SettingsError, match=r"gone.yaml: No such file"):
        Settings.load(file=tmp_path / "gone.yaml")


@pytest.mark.parametrize("text", ["", "gliner:\nservices:\n", "services: {GLiNERRunner: }"])
def test_empty_sections_mean_defaults(settings_file, text):
    assert Settings.load(file=settings_file(text)).max_batch_size == 32


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("runtime", "openvino"),
        ("onnx_model_file", "../model.onnx"),
        ("onnx_model_file", "/model.onnx"),
        ("onnx_model_file", "model.bin"),
        ("target_memory_fraction", 0),
        ("target_memory_fraction", 1.1),
        ("memory_overhead_factor", 0.9),
        ("device", "gpu"),
        ("device", "cuda:x"),
        ("dtype", "int8"),
        ("max_batch_size", "0"),
        ("max_batch_tokens", "-1"),
        ("inference_lanes", "100000"),
        ("decoding_threads", "-1"),
        ("batch_wait_timeout_ms", "-1"),
        ("batch_wait_timeout_ms", "10001"),
        ("default_threshold", "1.5"),
        ("default_threshold", "nan"),
        ("request_timeout_s", "0"),
        ("request_timeout_s", "inf"),
        ("window_words", "-1"),
        ("window_overlap_words", "-1"),
        ("max_labels_per_pass", "-1"),
        ("compat_long_text", "reject"),
        ("max_lora_rank", "0"),
        ("max_device_adapters", "0"),
        ("max_device_adapters", "1000000000"),
        ("max_adapter_bytes", "0"),
        ("adapter_loading_threads", "0"),
        ("adapter_root", "/no/such/folder"),
        ("adapter_id_pattern", "[a-z"),
        ("route_prefix", "gliner"),
        ("route_prefix", "/gliner/"),
        ("model", ""),
        ("model", "./no-such-folder"),
        ("model", "/no/such/folder"),
        ("model", "../escape"),
    ],
)
def test_a_value_out_of_bounds_is_an_error_that_names_flag_and_value(name, value):
    with pytest.raises(SettingsError) as caught:
        Settings.load({name: value})
    assert str(caught.value).startswith(f"{name}: ")
    assert f"got {value!r} from {flag_name(name)}" in str(caught.value)


def test_every_wrong_value_is_named(monkeypatch):
    monkeypatch.setenv("GLINER_DEVICE", "gpu")
    with pytest.raises(SettingsError, match=r"device: .*from GLINER_DEVICE\); max_labels: .*from --max-labels"):
        Settings.load({"max_labels": 0})


@pytest.mark.parametrize(("short", "full"), [("fp32", "float32"), ("fp16", "float16"), ("bf16", "bfloat16")])
def test_dtypes_have_short_names(short, full):
    assert Settings.load({"dtype": short}).dtype == full


def test_a_model_is_a_folder_here_or_in_the_bundle_or_a_hub_id(monkeypatch, tmp_path):
    assert Settings.load().model == str(PROJECT_ROOT / "models" / "demo")
    assert Settings.load({"model": "urchade/gliner_small-v2.1"}).model == "urchade/gliner_small-v2.1"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "gliner_config.json").touch()
    monkeypatch.chdir(tmp_path)
    assert Settings.load({"model": "mine"}).model == str(tmp_path / "mine")


def test_settings_do_not_change():
    with pytest.raises(ValueError, match="frozen"):
        Settings.load().max_labels = 3


@pytest.mark.parametrize(
    ("device", "cores", "lanes", "threads", "tokens"),
    [("cpu", 1, 1, 1, 1024), ("cpu", 2, 2, 1, 1024), ("cpu", 16, 4, 4, 1024), ("cuda:0", 8, 1, 8, 16384)],
)
def test_automatic_counts_follow_device_and_cores(device, cores, lanes, threads, tokens):
    decided = Settings.load().decided_for(device, cores)
    assert (decided.inference_lanes, decided.torch_threads, decided.max_batch_tokens) == (lanes, threads, tokens)


@given(
    lanes=st.integers(0, 256),
    threads=st.integers(0, 256),
    tokens=st.integers(0, 10**6),
    cores=st.integers(1, 256),
    device=st.sampled_from(["cpu", "cuda:1"]),
)
def test_a_decided_count_is_positive_and_a_given_one_is_kept(lanes, threads, tokens, cores, device):
    wanted = {"inference_lanes": lanes, "torch_threads": threads, "max_batch_tokens": tokens}
    decided = Settings(**wanted).decided_for(device, cores)
    for name, value in wanted.items():
        assert getattr(decided, name) == value or (value == 0 < getattr(decided, name))
    if not lanes and not threads:
        assert decided.inference_lanes * decided.torch_threads <= cores


def test_cores_are_those_of_the_container(tmp_path):
    quota = tmp_path / "cpu.max"
    quota.write_text("max 100000\n")
    everything = usable_cores(quota)
    assert everything == usable_cores(tmp_path / "none")
    quota.write_text("100000 100000\n")
    assert usable_cores(quota) == 1
    quota.write_text("50000 100000\n")
    assert usable_cores(quota) == 1
    quota.write_text("100000000 100000\n")
    assert usable_cores(quota) == everything


def test_the_bundles_file_is_accepted():
    assert CONFIGURATION_FILE.exists()
    assert set(Settings.load().configuration().services) == set(SERVICES)


def test_a_wrong_setting_ends_a_process_with_one_line_and_code_1():
    ended = subprocess.run(
        [sys.executable, "-c", "from gliner_bento.process.exits import load_or_exit; load_or_exit()"],
        env={**os.environ, "GLINER_MAX_LABELS": "many"},
        capture_output=True,
        text=True,
        check=False,
        cwd=PROJECT_ROOT,
    )
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.startswith("gliner-bento: max_labels: ")
    assert ended.stderr.count("\n") == 1


def test_a_folder_without_a_checkpoint_is_refused_before_anything_starts(tmp_path):
    with pytest.raises(SettingsError, match="model: the folder is no GLiNER checkpoint"):
        Settings.load({"model": str(tmp_path)})


def test_the_wrong_one_of_several_models_is_named():
    models = {"a": "models/demo", "b": "/nowhere"}
    with pytest.raises(SettingsError, match=r"models: b: neither a folder nor a hub id \(owner/name\)"):
        Settings.load({"models": models})
    with pytest.raises(SettingsError, match="b: max_lables: cannot be set for one model; did you mean max_labels"):
        Settings.load({"models": {"b": "models/demo"}, "model_settings": {"b": {"max_lables": 1}}})


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("bert", r"config.json describes another kind of model \(model_type 'bert'\)"),
    ],
)
def test_a_model_of_another_kind_is_named(tmp_path, kind, message):
    (tmp_path / "config.json").write_text(f'{{"model_type": "{kind}"}}')
    with pytest.raises(SettingsError, match=message):
        Settings.load({"model": str(tmp_path)})
    for served in ("extractor", "GLiClass"):
        (tmp_path / "config.json").write_text(f'{{"model_type": "{served}"}}')
        assert Settings.load({"model": str(tmp_path)}).model == str(tmp_path)


@pytest.mark.parametrize("service", ["GLINER", "GLINER_BENTO", "GLINER_API", "GLINER_PII_EU_2"])
def test_service_links_of_kubernetes_are_not_settings(monkeypatch, service):
    host, tcp = "10.0.0.1", "tcp://10.0.0.1:3000"
    links = {
        "SERVICE_HOST": host,
        "SERVICE_PORT": "3000",
        "SERVICE_PORT_HTTP": "3000",
        "PORT": tcp,
        "PORT_3000_TCP": tcp,
        "PORT_3000_TCP_PROTO": "tcp",
        "PORT_3000_TCP_PORT": "3000",
        "PORT_3000_TCP_ADDR": host,
    }
    for name, value in links.items():
        monkeypatch.setenv(f"{service}_{name}", value)
    assert Settings.load().max_batch_size == 32


@pytest.mark.parametrize("name", ["GLINER_SERVER_PORT", "GLINER_SERVICE_HOSTS", "GLINER_API_ADDR"])
def test_a_misspelt_setting_is_no_service_link(monkeypatch, name):
    monkeypatch.setenv(name, "3000")
    with pytest.raises(SettingsError, match=f"unknown environment variable {name}"):
        Settings.load()


VIEWS = (SchedulerConfig, EngineOptions, AdapterSettings, GatewayOptions)
CONSTANTS = {"max_bypasses", "free_padding_tokens"}
"""Fields of a view that are no settings."""


@pytest.mark.parametrize("kind", VIEWS)
def test_a_views_fields_are_settings_without_a_default(kind):
    for field in dataclasses.fields(kind):
        assert hasattr(Settings(), field.name) != (field.name in CONSTANTS)
        declared_again = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        assert declared_again == (field.name in CONSTANTS), f"{kind.__name__}.{field.name}"


def test_a_view_holds_the_values_of_its_settings():
    given = {
        "max_batch_size": 3,
        "max_batch_tokens": 5,
        "batch_lookahead": 23,
        "queue_capacity": 7,
        "inference_lanes": 11,
        "torch_threads": 13,
        "tokenizer_threads": 17,
        "decoding_threads": 19,
        "batch_wait_timeout_ms": 2.5,
    }
    config = Settings.load(given).decided_for("cpu").view(SchedulerConfig)
    assert {name: getattr(config, name) for name in given} == given
    given = {"window_words": 64, "window_overlap_words": 7, "max_labels_per_pass": 11}
    options = Settings.load(given).decided_for("cpu").view(EngineOptions)
    assert {name: getattr(options, name) for name in given} == given


@pytest.mark.parametrize("kind", VIEWS)
def test_a_view_holds_the_default_of_every_other_setting(kind):
    settings = Settings.load().decided_for("cpu")
    view = settings.view(kind)
    for field in dataclasses.fields(kind):
        if field.name not in CONSTANTS:
            assert getattr(view, field.name) == getattr(settings, field.name)


@pytest.mark.parametrize("name", FIELDS)
def test_a_format_has_the_settings_that_are_declared_for_it(name):
    assert name in FORMATS
    options = import_module(f"gliner_bento.gateway.compat.{name}").Options
    settings = Settings.load().view(GatewayOptions).of_format(options)
    assert dataclasses.asdict(settings) == {name: field.default for name, field in FIELDS[name].model_fields.items()}


def test_a_view_of_settings_that_are_not_decided_is_refused_by_the_scheduler():
    with pytest.raises(ValueError, match="max_batch_tokens must be at least 1"):
        Settings.load().view(SchedulerConfig)


def test_a_view_with_a_field_that_is_no_setting_is_an_error():
    misspelt = dataclasses.make_dataclass("Misspelt", [("max_batch_size", int), ("max_batch_sise", int)])
    with pytest.raises(TypeError, match=r"^Misspelt: no such setting: max_batch_sise$"):
        Settings.load().view(misspelt)


def test_adapters_are_cached_where_the_users_caches_are(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert Settings.load().disk_cache_dir == tmp_path / ".cache" / "gliner-bento" / "adapters"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert Settings.load().disk_cache_dir == tmp_path / "caches" / "gliner-bento" / "adapters"
    assert Settings.load({"disk_cache_dir": "~/mine"}).disk_cache_dir == tmp_path / "mine"


def test_folders_are_found_from_the_working_directory(monkeypatch, tmp_path):
    (tmp_path / "tenants").mkdir()
    monkeypatch.chdir(tmp_path)
    settings = Settings.load({"adapter_root": "tenants", "disk_cache_dir": "cache"})
    assert (settings.adapter_root, settings.disk_cache_dir) == (tmp_path / "tenants", tmp_path / "cache")


def test_models_are_named_once_and_written_as_text_or_as_an_object(settings_file, monkeypatch):
    demo = PROJECT_ROOT / "models" / "demo"
    expected = (f"a={demo}", "b=owner/name")
    assert Settings.load({"models": "a=models/demo,b=owner/name"}).models == expected
    assert Settings.load(file=settings_file("gliner: {models: {a: models/demo, b: owner/name}}")).models == expected
    monkeypatch.setenv("GLINER_MODELS", text_of(expected))
    assert Settings.load().models == expected
    for wrong in ("models/demo", "a=models/demo,a=owner/name", "a b=owner/name", "a=/nowhere"):
        with pytest.raises(SettingsError, match="models: "):
            Settings.load({"models": wrong})


def test_models_have_settings_of_their_own(settings_file, monkeypatch):
    pii = "{model: models/demo, dtype: fp32, max_labels: 3, pinned: true}"
    given = Settings.load(file=settings_file(f"gliner: {{max_labels: 7, models: {{a: models/demo, pii: {pii}}}}}"))
    assert [one.partition("=")[0] for one in given.models] == ["a", "pii"]
    assert given.model_settings == {"pii": {"dtype": "float32", "max_labels": 3, "pinned": True}}
    own = by_model(given)
    assert [(one.dtype, one.max_labels) for one in own.values()] == [("auto", 7), ("float32", 3)]
    monkeypatch.setenv("GLINER_MODELS", ",".join(given.models))  # as the command line passes it to the processes
    assert Settings.load(file=given.config).model_settings == given.model_settings
    monkeypatch.delenv("GLINER_MODELS")
    flags = {"models": "a=models/demo,b=models/demo", "model_settings": '{"b": {"default": true, "device": "cpu"}}'}
    assert [(name, one.device) for name, one in by_model(Settings.load(flags)).items()] == [("b", "cpu"), ("a", "auto")]
    for own_settings, message in (
        ('{"other": {}}', "no model other"),
        ('{"a": {"port": 3}}', "models: a: port: cannot be set for one model"),
        ('{"a": {"request_timeout_s": 3}}', "models: a: request_timeout_s: cannot be set for one model"),
        ('{"a": {"dtype": "int4"}}', "models: a: dtype: "),
        ('{"a": {"default": true}, "b": {"default": true}}', "only one can be the default"),
    ):
        with pytest.raises(SettingsError, match=message):
            Settings.load(flags | {"model_settings": own_settings})


def test_thresholds_of_labels_and_a_band_are_of_one_model_too(settings_file):
    row = "{model: models/demo, label_thresholds: {date of birth: 0.3}, review_band: [0.4, 0.6]}"
    given = Settings.load({"label_thresholds": '{"a": 1}'}, settings_file(f"gliner: {{models: {{pii: {row}}}}}"))
    (own,) = by_model(given).values()
    assert (given.label_thresholds, given.review_band) == ({"a": 1.0}, ())
    assert (own.label_thresholds, own.review_band) == ({"date of birth": 0.3}, (0.4, 0.6))
    for name, value, message in (
        ("label_thresholds", '{"a": 2}', "less than or equal to 1"),
        ("relation_thresholds", "[]", "valid dictionary"),
        ("review_band", "0.6,0.4", "must be two scores, the lower one first"),
        ("review_band", "0.6", "must be two scores"),
    ):
        with pytest.raises(SettingsError, match=f"^{name}: .*{message}"):
            Settings.load({name: value})


def test_the_limits_of_a_model_are_the_settings_that_are_marked_so():
    limits = {limit.name for limit in dataclasses.fields(Limits)}
    assert limits | {*marked(FormatFields, PerModel)} == {*marked(Settings, PerModel)}


@pytest.mark.parametrize("kind", [OfAllModels, PerModel, OfOperator, FlagOfCommands, NoEffectWithRay])
def test_the_reference_says_what_a_setting_may_do(kind):
    rows = {row.split("`")[1]: row for row in settings_table().splitlines() if row.startswith("| `")}
    settings = marked(Settings, kind)
    assert settings
    assert all(mark.note in rows[name] for name, mark in settings.items())


@pytest.mark.parametrize("wrong", ["(", "a{99999999999999999999}", "(" * 2000 + ")" * 2000])
def test_a_pattern_of_ids_that_cannot_be_compiled_is_one_clear_error(wrong):
    with pytest.raises(SettingsError, match="adapter_id_pattern: not a regular expression"):
        Settings.load({"adapter_id_pattern": wrong})


@pytest.mark.parametrize("name", ["allow_list", "deny_list"])
def test_a_list_is_a_file_or_its_content(name, tmp_path, monkeypatch):
    (tmp_path / "list.yaml").write_text("- Ada\n- pattern: a+\n")
    monkeypatch.chdir(tmp_path)
    assert getattr(Settings.load({name: "list.yaml"}), name) == str(tmp_path / "list.yaml")
    monkeypatch.setenv(f"GLINER_{name.upper()}", '["Ada"]')
    assert getattr(Settings.load(), name) == '["Ada"]'
    monkeypatch.delenv(f"GLINER_{name.upper()}")
    (tmp_path / "c.yaml").write_text(f"gliner: {{{name}: [Ada, {{value: Bob, case_sensitive: true}}]}}")
    assert "case_sensitive" in getattr(Settings.load(file=tmp_path / "c.yaml"), name)
    for wrong, message in (
        ("gone.yaml", "neither a file nor a list"),
        ("[1]", "0: Input should be"),
        ('[{"pattern": "("}]', f"{name}.0.pattern: missing"),
        ('[{"pattern": "' + "(" * 499 + ")" * 499 + '"}]', f"{name}.0.pattern: maximum recursion depth"),
        ("[", "YAML or JSON"),
        ("[" * 1000, "YAML or JSON"),
    ):
        with pytest.raises(SettingsError, match=f"{name}: .*{re.escape(message)}"):
            Settings.load({name: wrong})


@pytest.mark.parametrize("name", ["allow_list", "deny_list", "api_keys"])
def test_a_name_in_the_place_of_a_list_is_not_shown(name, tmp_path):
    for wrong in ("Ada Ng", "Ada/Ng", str(tmp_path / "Ada"), "Ada" * 2000):
        with pytest.raises(SettingsError, match=f"{name}: (neither a file|the file cannot be read)") as error:
            Settings.load({name: wrong})
        assert "Ada" not in str(error.value).replace('["Ada"]', "")
