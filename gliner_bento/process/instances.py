"""The instances of a server: processes that each hold all models. Plans names and devices; starts nothing."""

from __future__ import annotations

from dataclasses import dataclass

from gliner_bento.errors import StartupError
from gliner_bento.process.exits import exit_with
from gliner_bento.settings import Settings, SettingsError
from gliner_bento.settings.cores import usable_cores

RUNNER = "GLiNERRunner"


@dataclass(frozen=True, slots=True)
class Instance:
    """A process that holds the models. name: the name of its BentoML service.

    cuda_device: the only device that it may use; None: all devices. after: the instance that must be ready first.
    """

    name: str
    cuda_device: str | None = None
    after: str | None = None

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of its process."""
        return {} if self.cuda_device is None else {"CUDA_VISIBLE_DEVICES": self.cuda_device}


def by_model(settings: Settings) -> dict[str | None, Settings]:
    """The settings of each model, by its name, the default model first. A single model without a name has the key None.
    The models share the memory of a GPU equally."""
    if not settings.models:
        return {None: settings}
    fraction = settings.target_memory_fraction / len(settings.models)
    shared = settings.model_copy(update={"target_memory_fraction": fraction})
    named = dict(model.split("=", 1) for model in settings.models)
    default_first = sorted(named, key=lambda name: not settings.model_settings.get(name, {}).get("default"))
    return {name: shared.with_own(name, named[name], settings.model_settings.get(name, {})) for name in default_first}


def plan_instances(settings: Settings) -> list[Instance]:
    """The instances that `settings` ask for; a single one is named `GLiNERRunner`, several are numbered.

    Raises `SettingsError` if `cuda_devices` does not fit `device` or `num_instances`, and for `max_instances`, because
    BentoML cannot start instances later.
    """
    if settings.max_instances:
        raise SettingsError("max_instances: needs Ray: gliner-bento serve --backend ray; see docs/scaling.md")
    count, devices = settings.num_instances, settings.cuda_devices
    if devices and settings.device not in ("auto", "cuda"):
        raise SettingsError(f"cuda_devices: needs device cuda or auto, and device is {settings.device}")
    if len(devices) > count:
        raise SettingsError(
            f"cuda_devices: {len(devices)} devices for {count} instances; raise num_instances to {len(devices)}, or "
            "name fewer devices"
        )
    names = [RUNNER] if count == 1 else [f"{RUNNER}{number}" for number in range(1, count + 1)]
    return [
        Instance(
            name,
            cuda_device=devices[index % len(devices)] if devices else None,
            after=names[index - 1] if index else None,
        )
        for index, name in enumerate(names)
    ]


def plan_or_exit(settings: Settings) -> list[Instance]:
    """`plan_instances`. An invalid setting, or more instances than cores, ends the process with one line and exit code
    1; no instance has been started then."""
    try:
        if settings.num_instances > usable_cores():
            from gliner_bento.engine.checkpoint.device import pick_device  # noqa: PLC0415  # imports torch

            settings.decided_for(str(pick_device(settings.device)))  # raises, unless the device is a GPU
        return plan_instances(settings)
    except (SettingsError, StartupError) as error:
        exit_with(str(error))
