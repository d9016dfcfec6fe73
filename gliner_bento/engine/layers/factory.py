"""Makes an engine's layers from slices of a model's weights, and records which slices each layer has.

The engine computes with slices of a model's linear layers: stacked, split, transposed, scaled. An adapter updates the
model's layers by name. The record is used to apply an update to all slices of a layer:

    W' = W + B A    ──▶    W'[:, slice] = W[:, slice] + B A[:, slice]      (some inputs)
                           W'^T = W^T + A^T B^T                            (transposed: A and B are swapped)
                           [W1'; W2'] = [W1; W2] + [B1 0; 0 B2] [A1; A2]   (stacked outputs)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import torch
from torch import nn

from gliner_bento.adapters.adapter import LowRank
from gliner_bento.adapters.device import AdapterSink
from gliner_bento.engine.layers.kernels import EAGER, Kernels
from gliner_bento.engine.layers.linear import Activation, Linear
from gliner_bento.engine.layers.lora import AdaptedLinear, LoraUpdate, SlotUpdates
from gliner_bento.engine.layers.threads import torch_threads

Content = Literal["weight", "transposed", "bias"]
_all = partial(slice, None)

OwnShapes = Callable[[], AbstractContextManager[None]]
"""A context for operations on one text alone. It fixes the number of threads, on which the results' bits may depend."""


@dataclass(frozen=True, slots=True)
class WeightSlice:
    """A slice of a linear layer with weight W (out, in), from which a new layer is made.

    content: what the new weight is. "weight": W[outputs, inputs], with the bias if `biased`. "transposed":
        W[:, inputs]^T, without bias. "bias": the bias as a row (1, out), so that the new layer computes `x . bias`.
    scale: multiplies weight and bias; only with content "weight".
    """

    layer: nn.Linear
    content: Content = "weight"
    outputs: slice = field(default_factory=_all)
    inputs: slice = field(default_factory=_all)
    biased: bool = True
    scale: float = 1.0

    @property
    def weight(self) -> torch.Tensor:
        """The new layer's weight, (out, in)."""
        if self.content == "bias":
            return self.layer.bias.detach()[None]
        if self.content == "transposed":
            return self.layer.weight.detach()[:, self.inputs].T
        weight = self.layer.weight.detach()[self.outputs, self.inputs]
        return weight if self.scale == 1.0 else weight * self.scale

    @property
    def bias(self) -> torch.Tensor | None:
        """The new layer's bias, (out,), or None."""
        if self.content != "weight" or not self.biased or self.layer.bias is None:
            return None
        bias = self.layer.bias.detach()[self.outputs]
        return bias if self.scale == 1.0 else bias * self.scale


@dataclass(frozen=True, slots=True)
class _PlacedSlice:
    """A slice of the model's layer `name`, used for the outputs [first, first + size) of a new layer.

    source: the slice, without its layer.
    """

    name: str
    first: int
    size: int
    source: WeightSlice

    def update(self, low_rank: LowRank) -> LoraUpdate | None:
        """What an adapter's update of the model's layer changes in this slice; None: nothing."""
        source, bias = self.source, low_rank.bias
        if source.content == "bias":
            return None if bias is None else LoraUpdate(bias[:, None], bias.new_ones(1, 1), None)
        if source.content == "transposed":
            return LoraUpdate(low_rank.b, low_rank.a[:, source.inputs], None)
        scaled_bias = bias[source.outputs] * source.scale if source.biased and bias is not None else None
        return LoraUpdate(low_rank.a[:, source.inputs].T, low_rank.b[source.outputs].T * source.scale, scaled_bias)


class LinearSink(AdapterSink):
    """Writes adapters to a new layer that is made of slices of one or more of the model's layers."""

    def __init__(self, updates: SlotUpdates, slices: Sequence[_PlacedSlice], outputs: int, dtype: torch.dtype) -> None:
        self._updates = updates
        self._slices = slices
        self._outputs = outputs
        self._dtype = dtype

    def prepare(self, updates: Mapping[str, LowRank]) -> LoraUpdate | None:
        candidates = [
            (placed, placed.update(updates[placed.name])) for placed in self._slices if placed.name in updates
        ]
        changed = [(placed, update) for placed, update in candidates if update is not None]
        if not changed:
            return None
        a = torch.cat([update.a for _, update in changed], dim=1)
        b = a.new_zeros(a.shape[1], self._outputs)
        bias = a.new_zeros(self._outputs) if any(update.bias is not None for _, update in changed) else None
        row = 0
        for placed, update in changed:
            outputs = slice(placed.first, placed.first + placed.size)
            b[row : row + len(update.b), outputs] = update.b
            row += len(update.b)
            if bias is not None and update.bias is not None:
                bias[outputs] = update.bias
        return LoraUpdate(a.to(self._dtype), b.to(self._dtype), None if bias is None else bias.to(self._dtype))

    def write(self, slot: int, prepared: LoraUpdate | None) -> None:
        self._updates.write(slot, prepared)


class LayerFactory:
    """Makes layers from the weights of one model.

    slots: number of adapter slots on the device; 0: adapters are off, and no slice is recorded.
    sinks: where adapters are written; each layer that adapters may change has one.
    int8: whether `encoder_linear` layers multiply in 8 bits after `quantize`.
    threads: on a CPU, a row's result has the same bits with each of these numbers of threads and any other rows in the
        batch; empty: results may differ by rounding.
    batch_invariant: whether all layers that were made so far are as `threads` requires.
    own_shapes: see `OwnShapes`.
    padded: make layers for the padded layout, in which one operation computes all texts, and ignore `threads`; None:
        only if the model is not on a CPU.
    kernels: for encoders and heads.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        slots: int = 0,
        int8: bool = False,
        threads: Sequence[int] = (),
        padded: bool | None = None,
        kernels: Kernels = EAGER,
    ) -> None:
        self.padded = any(p.device.type != "cpu" for p in model.parameters()) if padded is None else padded
        self.slots = slots
        self.kernels = kernels
        self.threads = () if self.padded else tuple(threads)
        self.batch_invariant = bool(self.threads)
        self.sinks: list[AdapterSink] = []
        self.int8 = int8
        self._quantizable: dict[str, Linear] = {}
        self._layers: list[Linear] = []
        self._names = {module: name for name, module in model.named_modules()}
        self._adaptable: set[str] = set()
        # Not a method: layers keep it, and a method's reference to the factory would keep the model in memory.
        self.own_shapes: OwnShapes = partial(torch_threads, 1) if self.threads else nullcontext

    def encoder_linear(
        self, *sources: nn.Linear | WeightSlice, activation: Activation = "none", residual: bool = False
    ) -> Linear:
        """As `linear`, for a layer of an encoder: multiplies in 8 bits after `quantize`."""
        layer = self.linear(*sources, activation=activation, residual=residual, int8=self.int8)
        if self.int8:
            modules = [source if isinstance(source, nn.Linear) else source.layer for source in sources]
            self._quantizable[self._names.get(modules[0], "")] = layer
        return layer

    def quantize(self) -> dict[str, float | None]:
        """Let all encoder layers multiply in 8 bits, by the inputs that they have had since they were made. The error
        of each, by the name of its first module; see `Linear.quantize`."""
        errors = {name: layer.quantize() for name, layer in self._quantizable.items()}
        self.batch_invariant = bool(self.threads) and all(layer.batch_invariant for layer in self._layers)
        self._quantizable.clear()
        return errors

    def linear(
        self,
        *sources: nn.Linear | WeightSlice,
        activation: Activation = "none",
        residual: bool = False,
        int8: bool = False,
    ) -> Linear:
        """One layer for several sources with the same input, whose outputs are stacked. See `Linear`.

        Adapters change it only if all sources are layers of the model."""
        slices = [WeightSlice(source) if isinstance(source, nn.Linear) else source for source in sources]
        weights = [piece.weight for piece in slices]
        weight = weights[0] if len(weights) == 1 else torch.cat(weights)
        named = all(piece.layer in self._names for piece in slices)
        updates = self._record(slices, weight) if self.slots and named else None
        layer = Linear(
            weight,
            _stacked_bias(slices, weights),
            activation=activation,
            int8=int8,
            updates=updates,
            threads=self.threads,
            residual=residual,
            padded=self.padded,
        )
        self._layers.append(layer)
        self.batch_invariant &= layer.batch_invariant
        return layer

    def adapt(self, module: nn.Module) -> None:
        """Make the linear layers in another library's module adaptable, in place (see `on_slot`)."""
        if not self.slots:
            return
        for parent in list(module.modules()):
            # MultiheadAttention does not call its linear layer; an AdaptedLinear is adapted already.
            if not isinstance(parent, nn.MultiheadAttention | AdaptedLinear):
                for attribute, _ in list(parent.named_children()):
                    self.adapt_child(parent, attribute)

    def adapt_child(self, parent: nn.Module, attribute: str) -> None:
        """Make a module's child adaptable if it is a linear layer."""
        layer = getattr(parent, attribute)
        if self.slots and type(layer) is nn.Linear:
            setattr(parent, attribute, AdaptedLinear(layer, self._record([WeightSlice(layer)], layer.weight)))

    def name_of(self, module: nn.Module) -> str:
        """The module's name in the model."""
        name: str = self._names[module]
        return name

    def describe(self) -> dict[str, tuple[int, int] | str]:
        """For each module of the model, (in, out) of a linear layer that adapters may change, or the reason why not."""
        return {name: self._describe(module, name) for module, name in self._names.items() if name}

    def _describe(self, module: nn.Module, name: str) -> tuple[int, int] | str:
        if not isinstance(module, nn.Linear):
            return f"not a linear layer: {type(module).__name__}"
        if name not in self._adaptable:
            return "a layer that inference does not use, or does not use as a linear layer"
        return module.in_features, module.out_features

    def _record(self, slices: Sequence[WeightSlice], weight: torch.Tensor) -> SlotUpdates:
        """Record that a new layer, with this weight, is made of these slices. Returns its updates."""
        placed: list[_PlacedSlice] = []
        first = 0
        for piece in slices:
            name, size = self._names[piece.layer], len(piece.weight)
            placed.append(_PlacedSlice(name, first, size, replace(piece, layer=_NO_LAYER)))
            self._adaptable.add(name)
            first += size
        updates = SlotUpdates(weight.shape[1], weight.shape[0], self.slots, weight, padded=self.padded)
        self.sinks.append(LinearSink(updates, placed, len(weight), weight.dtype))
        return updates


def without(module: nn.Module, *names: str) -> nn.Module:
    """A copy of the module without these children, with the same weights. gliner's models skip missing children."""
    smaller = copy(module)
    smaller._modules = {name: child for name, child in module._modules.items() if name not in names}
    return smaller


_NO_LAYER = nn.Linear(1, 1, device="meta")


def _stacked_bias(slices: Sequence[WeightSlice], weights: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """The biases of all slices, 0 for a slice without bias; None if no slice has a bias."""
    biases = [piece.bias for piece in slices]
    if all(bias is None for bias in biases):
        return None
    filled = [
        weight.new_zeros(len(weight)) if bias is None else bias for bias, weight in zip(biases, weights, strict=True)
    ]
    return filled[0] if len(filled) == 1 else torch.cat(filled)
