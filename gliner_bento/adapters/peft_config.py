"""`adapter_config.json`: PEFT's LoRA fields, read strictly, and what they say of a layer.

PEFT itself says which fields there are and which layers a pattern means. Nothing that a field names is imported, and
no pattern is matched in this process before another one has come to an end with it.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import Annotated, Any, BinaryIO, Literal

from peft import LoraConfig
from peft.tuners.tuners_utils import check_target_module_exists
from peft.utils.other import get_pattern_key
from pydantic import BaseModel, BeforeValidator, ConfigDict, PositiveInt, ValidationError
from pydantic_core import from_json

from gliner_bento.adapters.archive import CONFIG_FILE, invalid, shown
from gliner_bento.errors import AdapterInvalid

PATTERN_TIMEOUT_S = 10.0

_MOST_BYTES = 256 * 2**10
_MOST_PLAIN_PATTERNS = 256
_PLAIN_PATTERN = re.compile(r"\^?[\w.-]*\$?")
_ALL_LINEAR = "all-linear"

# Fields that say how it was trained or where it comes from, and change nothing in what a layer computes.
_WITHOUT_EFFECT = {
    "auto_mapping",
    "corda_config",
    "ensure_weight_tying",
    "eva_config",
    "fan_in_fan_out",
    "inference_mode",
    "loftq_config",
    "lora_dropout",
    "lora_ga_config",
    "megatron_core",
    "peft_type",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
    "task_type",
}
# Ways to begin that leave the model's own weights as they are; the others need the weights that they have changed.
_BEGINNINGS = {"gaussian", "eva", "orthogonal", "mica"}

_TRY_PATTERNS = """
import json, re, sys, warnings
warnings.simplefilter("error")  # of patterns that will mean something else one day
sys.setrecursionlimit(500)  # the server is deeper in calls when it compiles them
names, patterns = json.load(sys.stdin)
for field, how, pattern in patterns:
    print(field, flush=True)
    for name in names:
        getattr(re, how)(pattern, name)
"""

_PEFT = LoraConfig()
_NULL_IS_EMPTY = BeforeValidator(lambda value: {} if value is None else value)


class _Fields(BaseModel):
    """The fields that say what a layer computes, by type; PEFT's values for those that are not given."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)

    r: PositiveInt = _PEFT.r
    lora_alpha: float = _PEFT.lora_alpha
    rank_pattern: Annotated[dict[str, PositiveInt], _NULL_IS_EMPTY] = {}
    alpha_pattern: Annotated[dict[str, float], _NULL_IS_EMPTY] = {}
    use_rslora: bool = _PEFT.use_rslora
    lora_bias: bool = _PEFT.lora_bias
    bias: Literal["none", "all", "lora_only"] = "none"
    init_lora_weights: bool | str | None = True
    target_modules: str | list[str]
    exclude_modules: str | list[str] | None = None
    layers_to_transform: int | list[int] | None = None
    layers_pattern: str | list[str] | None = None
    base_model_name_or_path: str | None = None


def read_config(file: BinaryIO) -> LoraConfig:
    """The configuration, as far as it concerns inference; raises `AdapterInvalid` if it says more than plain LoRA."""
    content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise invalid(f"{CONFIG_FILE} has more than {_MOST_BYTES} bytes")
    try:
        given = from_json(content)
    except ValueError as error:
        raise invalid(f"{CONFIG_FILE} is not JSON ({error})") from error
    if not isinstance(given, dict):
        raise invalid(f"{CONFIG_FILE} is not a JSON object")
    _refuse_what_is_not_served(given)
    try:
        fields = _Fields.model_validate(given)
    except ValidationError as error:
        fault = error.errors()[0]
        raise _field(fault["loc"][0], fault["msg"]) from error
    beginning = fields.init_lora_weights
    if isinstance(beginning, str) and beginning.lower() not in _BEGINNINGS:
        raise _field(
            "init_lora_weights",
            f"{shown(beginning)} changes the model's own weights; save the adapter converted to plain LoRA",
        )
    try:
        return LoraConfig(**fields.model_dump(exclude={"init_lora_weights"}))
    except (TypeError, ValueError) as error:
        raise invalid(f"{CONFIG_FILE}: {error}") from error


def check_patterns(config: LoraConfig, names: list[str]) -> None:
    """Raises `AdapterInvalid` where a pattern is none, or takes too long to be matched with these names of layers.

    A pattern of ten characters can take years, and Python's matching holds up all of the process. So patterns are
    matched, as PEFT does it, in a process that can be ended; plain names need no trial.
    """
    keys = [(field, key) for field in ("rank_pattern", "alpha_pattern") for key in getattr(config, field)]
    stacks = config.layers_pattern or []
    stacks = [("layers_pattern", key) for key in ([stacks] if isinstance(stacks, str) else stacks)]
    targets = [(field, getattr(config, field)) for field in ("target_modules", "exclude_modules")]
    patterns = [
        *((field, "match", rf"(.*\.)?({key})$") for field, key in keys),
        *((field, "match", rf"(?:^|.*?\.){key}\.(?P<idx>\d+)\.") for field, key in stacks),
        *((field, "fullmatch", key) for field, key in targets if isinstance(key, str) and key != _ALL_LINEAR),
    ]
    plain = [key for _, key in keys + stacks if _PLAIN_PATTERN.fullmatch(key)]
    if len(plain) == len(patterns) <= _MOST_PLAIN_PATTERNS:
        return
    try:
        tried = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _TRY_PATTERNS],
            input=json.dumps([names, patterns]).encode(),
            capture_output=True,
            check=False,
            timeout=PATTERN_TIMEOUT_S,
        )
        field, problem = tried.stdout, "is no regular expression" if tried.returncode else ""
    except subprocess.TimeoutExpired as error:
        field, problem = error.stdout or b"", "takes too long to match"
    if problem:
        raise _field([b"patterns", *field.split()][-1].decode(), problem)


def rank_and_scale(config: LoraConfig, name: str) -> tuple[int, float]:
    """What the configuration says of the layer of this name; raises `AdapterInvalid` where it names no such layer.

    Patterns have to be checked before.
    """
    targeted = config.target_modules == _ALL_LINEAR or check_target_module_exists(config, name)
    rank: int = config.rank_pattern.get(get_pattern_key(config.rank_pattern, name), config.r)
    alpha: float = config.alpha_pattern.get(get_pattern_key(config.alpha_pattern, name), config.lora_alpha)
    if not targeted:
        raise invalid(f"layer {shown(name)} is none of target_modules (less exclude_modules) in {CONFIG_FILE}")
    return rank, alpha / (math.sqrt(rank) if config.use_rslora else rank)


def _refuse_what_is_not_served(given: Mapping[str, Any]) -> None:
    """A field beside those that we read may be there if it says no: null, false, nothing."""
    if (kind := given.get("peft_type")) != "LORA":
        raise _field("peft_type", f"{shown(kind)} is not 'LORA'")
    for name in sorted(given.keys() - _Fields.model_fields.keys() - _WITHOUT_EFFECT):
        if given[name]:
            known = name in LoraConfig.__dataclass_fields__
            raise _field(shown(name), "adapters with it are not served" if known else "no field that this server knows")


def _field(name: object, problem: str) -> AdapterInvalid:
    return invalid(f"{CONFIG_FILE}: {name}: {problem}")
