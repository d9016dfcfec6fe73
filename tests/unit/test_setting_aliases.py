"""Settings under gliner.serve's names, and those of BentoML that a service relies on."""

from __future__ import annotations

import pytest
from _bentoml_sdk.service.config import ServiceConfig, validate

from gliner_bento.process.bentoml_options import bentoml_options, handles_requests, several_gateways
from gliner_bento.settings import Settings, SettingsError
from gliner_bento.settings.configuration import BENTOML_KEYS, SERVICES
from gliner_bento.settings.gliner_serve import ALIASES
from gliner_bento.settings.names import aliases_of, env_name, flag_name, origin


@pytest.mark.parametrize("service", SERVICES)
def test_bentoml_waits_longer_than_we_do_and_accepts_our_options(service):
    options = bentoml_options(Settings.load({"request_timeout_s": 90}), service)
    assert options["traffic"]["timeout"] > 90
    assert validate(options)["workers"] == 1


def test_the_files_section_of_a_service_wins_over_what_we_rely_on(settings_file):
    file = settings_file("services: {GLiNERRunner: {threads: 2, traffic: {external_queue: true}}}")
    assert bentoml_options(Settings.load(file=file), "GLiNERRunner") == {
        "logging": {"access": {"enabled": False}},
        "metrics": {"enabled": False},
        "tracing": {"excluded_urls": ".*"},
        "traffic": {"timeout": 40.0, "external_queue": True},
        "threads": 2,
    }
    file = settings_file("services: {GLiNERRunner: {traffic: {timeout: 7}}}")
    assert bentoml_options(Settings.load(file=file), "GLiNERRunner")["traffic"] == {"timeout": 7}


@pytest.mark.parametrize(
    ("section", "handles"),
    [
        ("workers: 2", False),
        ("http: {cors: {enabled: true, access_control_allow_origins: [a]}}", True),
        ("logging: {access: {enabled: true}}", True),
        ("traffic: {timeout: 7}", True),
        ("tracing: {exporter_type: otlp}", True),
    ],
)
def test_requests_pass_through_bentoml_only_if_an_option_of_it_concerns_them(
    section, handles, settings_file, monkeypatch
):
    def handled(name):
        return handles_requests(Settings.load(file=settings_file(f"services: {{{name}: {{{section}}}}}")))

    assert handled("GLiNERService") == handles
    monkeypatch.setenv("BENTOML_CONFIG_OPTIONS", "tracing.sample_rate=1")
    assert handled("GLiNERService")


@pytest.mark.parametrize(("workers", "several"), [("1", False), ("2", True), ("cpu_count", True)])
def test_several_workers_of_the_service_are_several_gateways(workers, several, settings_file):
    file = settings_file(f"services: {{GLiNERService: {{workers: {workers}}}}}")
    assert several_gateways(Settings.load(file=file)) == several


@pytest.mark.parametrize("service", SERVICES)
def test_messages_are_traced_only_if_bentoml_is_configured_to(service, settings_file, monkeypatch):
    def tracing(file):
        return bentoml_options(Settings.load(file=file), service).get("tracing")

    assert tracing(settings_file("services: {}")) == {"excluded_urls": ".*"}
    wanted = {"exporter_type": "otlp", "sample_rate": 1.0}
    assert (
        tracing(settings_file(f"services: {{{service}: {{tracing: {{exporter_type: otlp, sample_rate: 1.0}}}}}}"))
        == wanted
    )
    monkeypatch.setenv("BENTOML_CONFIG_OPTIONS", "tracing.sample_rate=1.0")
    assert tracing(settings_file("services: {}")) is None


def test_the_keys_accepted_for_a_service_are_those_that_bentoml_reads():
    ours = {"max_runner_connections", "runner_connection"}  # the gateway does not use BentoML's client
    assert set(ServiceConfig.__annotations__) - ours == BENTOML_KEYS


ALIASED = {
    "enable_lora": "true",
    "max_lora_rank": "3",
    "max_device_adapters": "5",
    "max_cpu_adapters": "7",
    "disk_cache_dir": "/somewhere",
    "max_disk_adapters": "11",
    "adapter_id_pattern": "[a-z]+",
    "num_instances": "2",
    "batch_wait_timeout_ms": "13",
    "target_memory_fraction": "0.5",
    "enable_sequence_packing": "false",
}


@pytest.mark.parametrize("alias", sorted(ALIASES))
def test_gliner_serves_names_are_accepted_everywhere(alias, monkeypatch, settings_file):
    name, value = ALIASES[alias], ALIASED[ALIASES[alias]]
    expected = getattr(Settings.load({name: value}), name)
    assert expected != getattr(Settings.load(), name)
    assert getattr(Settings.load({alias: value}), name) == expected
    assert getattr(Settings.load(file=settings_file(f"gliner: {{{alias}: '{value}'}}")), name) == expected
    monkeypatch.setenv(env_name(alias), value)
    assert getattr(Settings.load(), name) == expected
    assert aliases_of(name) == [alias]
    assert (origin(name, {}), origin(name, {alias: value})) == (env_name(alias), flag_name(alias))


def test_a_flag_wins_over_the_environment_over_the_file_whichever_name_each_uses(monkeypatch, settings_file):
    file = settings_file("gliner: {polylora_max_rank: 3}")
    monkeypatch.setenv("GLINER_MAX_LORA_RANK", "5")
    assert Settings.load(file=file).max_lora_rank == 5
    monkeypatch.setenv("GLINER_POLYLORA_MAX_RANK", "5")
    assert Settings.load({"max_lora_rank": "7"}, file=file).max_lora_rank == 7
    monkeypatch.delenv("GLINER_MAX_LORA_RANK")
    assert Settings.load(file=settings_file("gliner: {max_lora_rank: 9}")).max_lora_rank == 5


def test_two_names_of_one_setting_may_not_differ(monkeypatch, settings_file):
    same = {"max_lora_rank": "3", "polylora_max_rank": "3"}
    assert Settings.load(same).max_lora_rank == 3
    with pytest.raises(
        SettingsError, match="--max-lora-rank and --polylora-max-rank name one setting but have different"
    ):
        Settings.load(same | {"polylora_max_rank": "4"})
    with pytest.raises(SettingsError, match=r"^enable_polylora and enable_lora name one setting but have different"):
        Settings.load(file=settings_file("gliner: {enable_polylora: true, enable_lora: false}"))
    monkeypatch.setenv("GLINER_MAX_LORA_RANK", "3")
    monkeypatch.setenv("GLINER_POLYLORA_MAX_RANK", "4")
    with pytest.raises(SettingsError, match="GLINER_POLYLORA_MAX_RANK and GLINER_MAX_LORA_RANK name one setting"):
        Settings.load()


def test_gliner_serves_container_can_disable_compilation(monkeypatch, settings_file):
    file = settings_file("gliner: {enable_compilation: true}")
    monkeypatch.setenv("GLINER_DISABLE_COMPILE", "false")
    assert Settings.load(file=file).enable_compilation
    assert origin("enable_compilation", {}) is None
    monkeypatch.setenv("GLINER_DISABLE_COMPILE", "true")
    assert not Settings.load(file=file).enable_compilation
    assert origin("enable_compilation", {}) == "GLINER_DISABLE_COMPILE"
    assert Settings.load({"enable_compilation": "true"}, file=file).enable_compilation
    monkeypatch.setenv("GLINER_ENABLE_COMPILATION", "true")
    with pytest.raises(SettingsError, match="GLINER_ENABLE_COMPILATION and GLINER_DISABLE_COMPILE name one setting"):
        Settings.load()
    monkeypatch.setenv("GLINER_DISABLE_COMPILE", "yes")
    with pytest.raises(SettingsError, match=r"^GLINER_DISABLE_COMPILE: must be true or false .got 'yes'.$"):
        Settings.load(file=file)


@pytest.mark.parametrize("name", ["polylora_use_triton_kernels", "polylora_base_adapter_id"])
def test_unsupported_names_of_gliner_serve_are_refused(name, monkeypatch):
    with pytest.raises(SettingsError, match=f"unknown setting {name}"):
        Settings.load({name: "x"})
    monkeypatch.setenv(env_name(name), "x")
    with pytest.raises(SettingsError, match=f"unknown environment variable {env_name(name)}"):
        Settings.load()


def test_an_error_names_the_alias_that_was_used():
    with pytest.raises(SettingsError, match=r"max_lora_rank: .* .got '0' from --polylora-max-rank"):
        Settings.load({"polylora_max_rank": "0"})
