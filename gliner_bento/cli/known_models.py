"""Public checkpoints, for `models list --known` and the page docs/which-model.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import TypeAdapter

_FILE = Path(__file__).with_suffix(".yaml")
_BYTES_PER_PARAMETER = 4


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A public checkpoint. parameters: in millions. speed: texts/s, from the file `measured`. tried: what has run here;
    everything else is from its card."""

    id: str
    languages: str
    licence: str
    tried: str
    parameters: int | None = None
    speed: int | None = None
    measured: str | None = None
    notes: str = ""

    @property
    def weights_gb(self) -> float | None:
        """Size of the weights in float32; half of it in bfloat16."""
        return None if self.parameters is None else self.parameters * _BYTES_PER_PARAMETER / 1000


@dataclass(frozen=True, slots=True)
class Use:
    """Checkpoints for one purpose."""

    use: str
    models: Sequence[KnownModel]


def known_models() -> Sequence[Use]:
    """All of them, by purpose."""
    content = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    return TypeAdapter(list[Use]).validate_python(content)


COLUMNS = ("model", "languages", "licence", "million parameters", "GB in float32", "texts/s", "tried here", "notes")


def row(model: KnownModel) -> Sequence[str]:
    """The cells of a model, in the order of `COLUMNS`."""
    weights_gb = "-" if model.weights_gb is None else f"{model.weights_gb:.1f}"
    numbers = ["-" if number is None else str(number) for number in (model.parameters, model.speed)]
    return model.id, model.languages, model.licence, numbers[0], weights_gb, numbers[1], model.tried, model.notes
