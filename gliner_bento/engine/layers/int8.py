"""Linear layers in 8 bits on CPUs, with scales that are fixed when the model is loaded.

    x ──▶ one pass: x / balance / scale + zero point, uint8 ──▶ one product of oneDNN, with bias, activation, residual

Scales do not depend on the batch, so neither do results. A column of inputs that is much larger than the others would
take most of the 8 bits. So columns are balanced, as in SmoothQuant: inputs are divided by a factor for each column, and
the columns of the weight are multiplied by it.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass, field

import torch

# Inputs that are kept for the choice of a balance, in rows; and at most this many of one batch.
_ROWS = 256
_ROWS_OF_A_BATCH = 32
# Exponents of the balance: 0 leaves all differences between columns in the weight, 1 in the inputs.
_EXPONENTS = (0.35, 0.5, 0.65, 0.8)
# Shares of the inputs' range that 8 bits may represent instead of all of it. What is outside is clipped.
_CLIPPED_RANGES = (0.85, 0.7)
_TINY = 1e-6
_LEVELS, _WEIGHT_MAX = 255.0, 127.0
# A float32 to which this is added is rounded, and its lowest bits are the integer.
_INTEGERS = 1.5 * 2**23

# The CPU's instructions that multiply 8-bit integers and add them in 32 bits. Without them, float32 is faster.
_INSTRUCTIONS = ("avx512_vnni", "avx_vnni", "amx_int8")


def multiplies_int8() -> bool:
    """Whether this CPU has instructions for int8, and torch has oneDNN's layers for them."""
    if platform.machine() not in {"x86_64", "AMD64"} or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name) for name in _INSTRUCTIONS)


@dataclass(slots=True)
class InputRecord:
    """Inputs of one layer during calibration. low, high: (in,), the least and the largest value of each column."""

    low: torch.Tensor | None = None
    high: torch.Tensor | None = None
    _rows: list[torch.Tensor] = field(default_factory=list)

    def add(self, x: torch.Tensor) -> None:
        """Record inputs (N, in)."""
        x = x.detach()
        low, high = x.amin(0).float(), x.amax(0).float()
        self.low = low if self.low is None else torch.minimum(self.low, low)
        self.high = high if self.high is None else torch.maximum(self.high, high)
        if sum(map(len, self._rows)) < _ROWS:
            self._rows.append(x[:: max(1, len(x) // _ROWS_OF_A_BATCH)].clone())

    @property
    def rows(self) -> torch.Tensor:
        """A sample of the inputs, (rows, in), float32."""
        return torch.cat(self._rows)[:_ROWS].float()


@dataclass(frozen=True, slots=True)
class InputScales:
    """How inputs become uint8: `x * factors + zero_point`, rounded. factors: (in,). scale: of the balanced inputs."""

    factors: torch.Tensor
    scale: float
    zero_point: int

    def quantized(self, x: torch.Tensor) -> torch.Tensor:
        """(N, in) -> (N, in), uint8. Avoids what torch does slowly: products of two dtypes, float32 to uint8."""
        scaled = x * self.factors if x.dtype is torch.float32 else x.float().mul_(self.factors)
        rounded = scaled.clamp_(-self.zero_point, _LEVELS - self.zero_point).add_(_INTEGERS + self.zero_point)
        return rounded.view(torch.int32).to(torch.uint8)


class Int8:
    """`activation(x @ weight.T + bias)` in 8 bits, from inputs of a layer with `weight` (out, in) and `bias` (out).

    outputs: their number. error: of the outputs on recorded inputs, relative to their norm.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, record: InputRecord) -> None:
        choice = _best_choice(weight.detach().float(), record)
        self.error = choice.error
        self.outputs = len(weight)
        self._inputs, self._scale = choice.inputs, choice.scale
        self._weight = torch.ops.onednn.qlinear_prepack(choice.integers, None)
        self._zeros = torch.zeros(len(weight), dtype=torch.int64)
        # The mean error of each output is no noise: layers after this one would add it up.
        self._bias = choice.errors.mean(0)
        if bias is not None:
            self._bias += bias.detach()

    def __call__(self, x: torch.Tensor, activation: str) -> torch.Tensor:
        """(N, in) -> (N, out), in the dtype of `x`. activation: none, relu or gelu (exact)."""
        inputs = self._inputs
        algorithm = "none" if activation == "gelu" else ""  # "none": not the tanh approximation
        y: torch.Tensor = torch.ops.onednn.qlinear_pointwise(
            inputs.quantized(x), inputs.scale, inputs.zero_point, self._weight, self._scale, self._zeros, self._bias,
            1.0, 0, x.dtype, activation, [], algorithm,
        )  # fmt: skip
        return y

    def plus(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """The layer without activation, plus `residual` (N, out)."""
        inputs = self._inputs
        y: torch.Tensor = torch.ops.onednn.qlinear_pointwise.binary(
            inputs.quantized(x), inputs.scale, inputs.zero_point, self._weight, self._scale, self._zeros, residual,
            self._bias, 1.0, 0, x.dtype, 1.0, 0, "add", 1.0, "none", [], "",
        )  # fmt: skip
        return y


@dataclass(frozen=True, slots=True)
class _Choice:
    """A weight in 8 bits. integers: (out, in). scale: (out,). errors: (rows, out), what 8 bits miss of the outputs of
    the recorded inputs. error: their norm, relative to the outputs'."""

    balance: torch.Tensor
    inputs: InputScales
    integers: torch.Tensor
    scale: torch.Tensor
    errors: torch.Tensor
    error: float


def _best_choice(weight: torch.Tensor, record: InputRecord) -> _Choice:
    """The balance with the least error, and then the share of the range that 8 bits represent."""
    rows = record.rows
    outputs = rows @ weight.T
    norm = float(outputs.norm()) or 1.0

    def choice(balance: torch.Tensor, share: float = 1.0) -> _Choice:
        inputs = _scales(record, balance, share)
        integers, scale = _quantized_weight(weight * balance)
        decoded = (inputs.quantized(rows).float() - inputs.zero_point) * inputs.scale
        errors = outputs - (decoded @ integers.float().T) * scale
        return _Choice(balance, inputs, integers, scale, errors, float(errors.norm()) / norm)

    def error(choice: _Choice) -> float:
        return choice.error

    balances = [torch.ones(weight.shape[1]), *(_balance(weight, record, exponent) for exponent in _EXPONENTS)]
    balanced = min(map(choice, balances), key=error)
    return min(balanced, *(choice(balanced.balance, share) for share in _CLIPPED_RANGES), key=error)


def _balance(weight: torch.Tensor, record: InputRecord, exponent: float) -> torch.Tensor:
    """The factor of each column, (in,): large where inputs are large and weights are small."""
    assert record.low is not None
    assert record.high is not None
    inputs = torch.maximum(record.low.abs(), record.high.abs()).clamp_min(_TINY)
    weights = weight.abs().amax(0).clamp_min(_TINY)
    return inputs**exponent / weights ** (1 - exponent)


def _scales(record: InputRecord, balance: torch.Tensor, share: float) -> InputScales:
    assert record.low is not None
    assert record.high is not None
    low = min(float((record.low / balance).min()), 0.0) * share
    high = max(float((record.high / balance).max()), 0.0) * share
    scale = max((high - low) / _LEVELS, _TINY**2)
    return InputScales(1.0 / (balance * scale), scale, round(-low / scale))


def _quantized_weight(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The weight (out, in) as int8, and the scale of each output (out,)."""
    scale = weight.abs().amax(1).clamp_min(_TINY**2) / _WEIGHT_MAX
    return (weight / scale[:, None]).round_().to(torch.int8), scale
