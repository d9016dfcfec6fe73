"""Reads `adapter_config.json` strictly, in PEFT's or gliner2's form, and gives the rank and scale of each layer.

PEFT defines the fields, and which layers a pattern matches. Nothing that a field names is imported. Patterns are first
matched in a separate process, because matching may hang.
"""

from __future__ import annotations

import json
import math
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Annotated, Any, BinaryIO, Literal

from peft import LoraConfig
from peft.tuners.tuners_utils import check_target_module_exists
from peft.utils.other import get_pattern_key
from pydantic import BaseModel, BeforeValidator, ConfigDict, PositiveInt, ValidationError
from pydantic_core import from_json

from gliner_bento.adapters.archive import CONFIG_FILE, invalid
from gliner_bento.errors import AdapterInvalid
from gliner_bento.storage.archives import shown

PATTERN_CPU_S = 1
PATTERN_TIMEOUT_S = 10.0
"""Limits on matching all patterns: CPU time, and elapsed time, which is longer on a busy machine."""

_MAX_BYTES = 256 * 2**10
_MAX_PLAIN_PATTERNS = 256
_PLAIN_PATTERN = re.compile(r"\^?[\w.-]*\$?")
_ALL_LINEAR = "all-linear"

# Fields about training and origin, which do not change what a layer computes.
_WITHOUT_EFFECT = {
    "auto_mapping",
    "base_model_name_or_path",
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
# Initializations that do not change the model's own weights. With any other, an adapter needs the changed weights.
_INITIALIZATIONS = {"gaussian", "eva", "orthogonal", "mica"}

_TRY_PATTERNS = """
import json, re, resource, sys, warnings
warnings.simplefilter("error")  # deprecated patterns
sys.setrecursionlimit(500)  # half the default: where the server compiles a pattern, its call stack is deeper
cpu_s, names, patterns = json.load(sys.stdin)
resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
for field, how, pattern in patterns:
    print(field, flush=True)
    for name in names:
        getattr(re, how)(pattern, name)
"""

_DEFAULTS = LoraConfig()
_NULL_IS_EMPTY = BeforeValidator(lambda value: {} if value is None else value)


class _Fields(BaseModel):
    """The fields that define what a layer computes, with PEFT's defaults."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)

    r: PositiveInt = _DEFAULTS.r
    lora_alpha: float = _DEFAULTS.lora_alpha
    rank_pattern: Annotated[dict[str, PositiveInt], _NULL_IS_EMPTY] = {}
    alpha_pattern: Annotated[dict[str, float], _NULL_IS_EMPTY] = {}
    use_rslora: bool = _DEFAULTS.use_rslora
    lora_bias: bool = _DEFAULTS.lora_bias
    bias: Literal["none", "all", "lora_only"] = "none"
    init_lora_weights: bool | str | None = True
    target_modules: str | list[str]
    exclude_modules: str | list[str] | None = None
    layers_to_transform: int | list[int] | None = None
    layers_pattern: str | list[str] | None = None


def read_config(file: BinaryIO) -> LoraConfig:
    """Read the fields that inference needs; raises `AdapterInvalid` for anything but plain LoRA."""
    content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise invalid(f"{CONFIG_FILE} has more than {_MAX_BYTES} bytes")
    try:
        given = from_json(content)
    except ValueError as error:
        raise invalid(f"{CONFIG_FILE} is not JSON ({error})") from error
    if not isinstance(given, dict):
        raise invalid(f"{CONFIG_FILE} is not a JSON object")
    is_gliner2 = "peft_type" not in given and given.get("adapter_type") == "lora"
    if is_gliner2:
        given = _of_gliner2(given)
    _check_fields(given)
    try:
        fields = _Fields.model_validate(given)
    except ValidationError as error:
        fault = error.errors()[0]
        name = fault["loc"][0]
        raise _invalid_field("lora_r" if is_gliner2 and name == "r" else name, fault["msg"]) from error
    initialization = fields.init_lora_weights
    if isinstance(initialization, str) and initialization.lower() not in _INITIALIZATIONS:
        raise _invalid_field(
            "init_lora_weights",
            f"{shown(initialization)} changes the model's own weights; convert the adapter to plain LoRA",
        )
    try:
        return LoraConfig(**fields.model_dump(exclude={"init_lora_weights"}))
    except (TypeError, ValueError) as error:
        raise invalid(f"{CONFIG_FILE}: {error}") from error


def check_patterns(config: LoraConfig, names: list[str]) -> None:
    """Raises `AdapterInvalid` for an invalid pattern, and for one that takes too long to match these layer names.

    Matching a pattern of ten characters can take years, and Python's matching blocks the whole process. So patterns
    are matched, in the same way as PEFT, in a process that can be killed. This is not needed if all are plain names.
    """
    keys = [(field, key) for field in ("rank_pattern", "alpha_pattern") for key in getattr(config, field)]
    layers_pattern = config.layers_pattern or []
    list_names = [layers_pattern] if isinstance(layers_pattern, str) else layers_pattern  # names of lists of layers
    modules = [(field, getattr(config, field)) for field in ("target_modules", "exclude_modules")]
    targets = [(field, "fullmatch", key) for field, key in modules if isinstance(key, str) and key != _ALL_LINEAR]
    patterns = [
        *((field, "match", rf"(.*\.)?({key})$") for field, key in keys),
        *(("layers_pattern", "match", rf"(?:^|.*?\.){name}\.(?P<idx>\d+)\.") for name in list_names),
        *targets,
    ]
    all_plain = not targets and all(map(_PLAIN_PATTERN.fullmatch, [*(key for _, key in keys), *list_names]))
    if all_plain and len(patterns) <= _MAX_PLAIN_PATTERNS:
        return
    try:
        tried = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _TRY_PATTERNS],
            input=json.dumps([PATTERN_CPU_S, names, patterns]).encode(),
            capture_output=True,
            check=False,
            timeout=PATTERN_TIMEOUT_S,
        )
        problems = {0: "", -signal.SIGXCPU: "takes too long to match", -signal.SIGKILL: "takes too long to match"}
        output, problem = tried.stdout, problems.get(tried.returncode, "is not a regular expression")
    except subprocess.TimeoutExpired as error:
        output, problem = error.stdout or b"", "takes too long to match"
    if problem:
        fields = output.decode().split()  # of the patterns that were tried; the last one failed
        raise _invalid_field(fields[-1] if fields else "patterns", problem)


def rank_and_scale(config: LoraConfig, name: str) -> tuple[int, float]:
    """Rank and scale of the layer of this name; raises `AdapterInvalid` if the configuration does not target the layer.

    Call `check_patterns` first.
    """
    targeted = config.target_modules == _ALL_LINEAR or check_target_module_exists(config, name)
    rank: int = config.rank_pattern.get(get_pattern_key(config.rank_pattern, name), config.r)
    alpha: float = config.alpha_pattern.get(get_pattern_key(config.alpha_pattern, name), config.lora_alpha)
    if not targeted:
        raise invalid(f"layer {shown(name)} is not in target_modules (less exclude_modules) in {CONFIG_FILE}")
    return rank, alpha / (math.sqrt(rank) if config.use_rslora else rank)


def _of_gliner2(given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the fields of gliner2's own form to PEFT's. gliner2's `target_modules` names parts of the model, not
    layers. So all layers are accepted; the adapter changes those that it has tensors for."""
    rank, alpha = given.get("lora_r", 8), given.get("lora_alpha", 16.0)
    return {"peft_type": "LORA", "target_modules": _ALL_LINEAR, "r": rank, "lora_alpha": alpha}


def _check_fields(given: Mapping[str, Any]) -> None:
    """Raises `AdapterInvalid` for a field that is not supported, unless it is null, false or empty."""
    if (kind := given.get("peft_type")) != "LORA":
        raise _invalid_field("peft_type", f"{shown(kind)} is not 'LORA'")
    for name in sorted(given.keys() - _Fields.model_fields.keys() - _WITHOUT_EFFECT):
        if given[name]:
            known = name in LoraConfig.__dataclass_fields__
            raise _invalid_field(shown(name), "adapters with it are not served" if known else "unknown field")


def _invalid_field(name: object, problem: str) -> AdapterInvalid:
    return invalid(f"{CONFIG_FILE}: {name}: {problem}")
