"""DJL Serving's serving.properties: its keys, and our settings for them (docs/migrate/djl-serving.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from gliner_bento.settings.configuration import SettingsError
from gliner_bento.settings.names import origin

_LINE = re.compile(r"\s*(?P<key>(?:\\.|[^\s=:\\])+)\s*[=:\s]?\s*(?P<value>.*)")
_WORKERS = re.compile(r"((?P<device>cpu|gpu)\.)?(?P<bound>min|max)(_w|W)orkers?")

SETTINGS = {
    "option.model_id": "model",
    "option.revision": "revision",
    "option.dtype": "dtype",
    "batch_size": "max_batch_size",
    "max_batch_delay": "batch_wait_timeout_ms",
    "job_queue_size": "queue_capacity",
    "option.predict_timeout": "request_timeout_s",
    "option.enable_lora": "enable_lora",
    "option.max_loras": "max_device_adapters",
    "option.max_cpu_loras": "max_cpu_adapters",
    "option.max_lora_rank": "max_lora_rank",
}
"""Keys that correspond to a setting with the same values."""

_WHY_NO_EFFECT = {
    "engine": "there is only one",
    "max_idle_time": "replicas are not stopped when idle",
    "reserved_memory_mb": "set target_memory_fraction, a share of the device",
    "required_memory_mb": "memory is measured at start",
    "gpu.required_memory_mb": "memory is measured at start",
    "translatorFactory": "there are no translators",
    "option.entryPoint": "there are no handlers",
    "option.model_loading_timeout": "the start has no time limit",
}


class Properties(NamedTuple):
    """The content of a file. settings: values by name. warnings: a line for each key without effect."""

    settings: Mapping[str, str]
    warnings: list[str]


def read(file: Path, flags: Mapping[str, object]) -> Properties:
    """The settings in a file, without those that a flag or an environment variable sets. Raises SettingsError.

    Without `option.model_id`, the model is the folder of `file`, if that folder is a checkpoint.
    """
    try:
        given = _parsed(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"--serving-properties: {file}: {getattr(error, 'strerror', 'not UTF-8')}") from None
    settings, warnings = _translated(given, str(file))
    if "model" not in settings and (file.parent / "gliner_config.json").is_file():
        settings["model"] = str(file.parent.resolve())
    not_overridden = {name: value for name, value in settings.items() if origin(name, flags) is None}
    return Properties(not_overridden, warnings)


def _parsed(text: str) -> dict[str, str]:
    """The pairs of a Java properties file."""
    matches = filter(None, map(_LINE.match, _logical_lines(text)))
    return {_unescaped(match["key"]): _unescaped(match["value"]).strip() for match in matches}


def _logical_lines(text: str) -> Iterator[str]:
    """The lines without comments. A line that ends with an unescaped backslash is joined with the next."""
    begun: str | None = None
    for line in text.splitlines():
        if begun is None and line.lstrip().startswith(("#", "!")):
            continue
        joined = (begun or "") + line.lstrip()
        backslashes = len(joined) - len(joined.rstrip("\\"))
        begun = joined[:-1] if backslashes % 2 else None  # an odd number: the last one is not escaped
        if begun is None:
            yield joined
    if begun:
        yield begun


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _translated(given: Mapping[str, str], file: str) -> tuple[dict[str, str], list[str]]:
    """The settings for the keys of a file, and the warnings."""
    settings: dict[str, str] = {}
    warnings: list[str] = []
    workers: dict[str, str] = {}  # min and max, per device
    if value := given.get("load_on_devices"):
        settings |= _devices(value, file)
    device = settings.get("device", "").partition(":")[0].replace("cuda", "gpu")
    for key, value in given.items():
        if key in SETTINGS:
            settings[SETTINGS[key]] = _not_empty(value, key, file)
        elif match := _WORKERS.fullmatch(key):
            if match["device"] in (None, device):
                workers[match["bound"]] = _count(value, key, file)
            else:
                warnings.append(_warning(key, f"load_on_devices names no {match['device']}"))
        elif key != "load_on_devices":
            warnings.append(_warning(key, _WHY_NO_EFFECT.get(key, "this server has no such option")))
    if workers:
        per_device = workers.get("max") or workers["min"]
        devices = settings.get("cuda_devices", "").count(",") + 1
        settings["num_instances"] = str(int(per_device) * devices)
        if workers.get("min", per_device) != per_device:
            warnings.append(_warning("minWorkers", "the number of replicas is always maxWorkers"))
    return settings, warnings


def _devices(value: str, file: str) -> dict[str, str]:
    """The settings for a value of load_on_devices: `*`, `-1` or `cpu`, or GPU indexes."""
    names = [name.strip().removeprefix("gpu") for name in re.split("[;,]", value) if name.strip()]
    if names == ["*"]:
        return {}
    if names and set(names) <= {"-1", "cpu"}:
        return {"device": "cpu"}
    if not names or not all(re.fullmatch("[0-9]+", name) for name in names):
        raise SettingsError(f"{file}: load_on_devices: must be *, -1 (CPU) or numbers of GPUs (got {value!r})")
    if len(names) == 1:
        return {"device": f"cuda:{names[0]}"}
    return {"device": "cuda", "cuda_devices": ",".join(names), "num_instances": str(len(names))}


def _count(value: str, key: str, file: str) -> str:
    if not re.fullmatch("[1-9][0-9]{0,3}", value):
        raise SettingsError(f"{file}: {key}: must be a number from 1 to 9999 (got {value!r})")
    return value


def _not_empty(value: str, key: str, file: str) -> str:
    if not value:
        raise SettingsError(f"{file}: {key}: has no value")
    return value


def _warning(key: str, why: str) -> str:
    return f"serving.properties: {key} has no effect: {why}"
