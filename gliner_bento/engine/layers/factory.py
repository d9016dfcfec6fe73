"""Makes an engine's layers from slices of a model's weights, and records which slices each layer has.

A fast path computes with slices of a model's linear layers: stacked, split, transposed, scaled. An adapter updates the
model's layers by name. With the record, an update reaches all slices of a layer:

    W' = W + B A    ──▶    W'[:, slice] = W[:, slice] + B A[:, slice]      (some inputs)
                           W'^T = W^T + A^T B^T                            (transposed: A and B change places)
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
from gliner_bento.adapters.device import AdapterTarget
from gliner_bento.engine.layers.kernels import EAGER, Kernels
from gliner_bento.engine.layers.linear import Activation, Linear
from gliner_bento.engine.layers.lora import AdaptedLinear, LoraUpdate, SlotUpdates
from gliner_bento.engine.layers.threads import torch_threads

Content = Literal["weight", "transposed", "bias"]
_all = partial(slice, None)

OwnShapes = Callable[[], AbstractContextManager[None]]
"""A context for operations whose shapes follow from one text: their bits may depend on the number of threads only."""


@dataclass(frozen=True, slots=True)
class WeightSlice:
    """A slice of a linear layer with weight W (out, in), to be the weight of a layer of its own.

    content: weight: W[outputs, inputs], with the bias if `biased`; transposed: W[:, inputs]^T, without bias; bias: the
        bias as a weight (1, out), for `p . b`.
    scale: multiplies the slice.
    """

    layer: nn.Linear
    content: Content = "weight"
    outputs: slice = field(default_factory=_all)
    inputs: slice = field(default_factory=_all)
    biased: bool = True
    scale: float = 1.0

    @property
    def weight(self) -> torch.Tensor:
        """(out, in) of the new layer."""
        if self.content == "bias":
            return self.layer.bias.detach()[None]
        if self.content == "transposed":
            return self.layer.weight.detach()[:, self.inputs].T
        weight = self.layer.weight.detach()[self.outputs, self.inputs]
        return weight if self.scale == 1.0 else weight * self.scale

    @property
    def bias(self) -> torch.Tensor | None:
        """(out) of the new layer, or None."""
        if self.content != "weight" or not self.biased or self.layer.bias is None:
            return None
        bias = self.layer.bias.detach()[self.outputs]
        return bias if self.scale == 1.0 else bias * self.scale


@dataclass(frozen=True, slots=True)
class _PlacedSlice:
    """A slice of the model's layer `name` within a new layer, where it is `size` outputs from `first` on.

    source: the slice, without its layer.
    """

    name: str
    first: int
    size: int
    source: WeightSlice

    def update(self, low_rank: LowRank) -> LoraUpdate | None:
        """This slice's part of an adapter's update of the model's layer; None: no change."""
        source, bias = self.source, low_rank.bias
        if source.content == "bias":
            return None if bias is None else LoraUpdate(bias[:, None], bias.new_ones(1, 1), None)
        if source.content == "transposed":
            return LoraUpdate(low_rank.b, low_rank.a[:, source.inputs], None)
        scaled_bias = bias[source.outputs] * source.scale if source.biased and bias is not None else None
        return LoraUpdate(low_rank.a[:, source.inputs].T, low_rank.b[source.outputs].T * source.scale, scaled_bias)


class LinearSink(AdapterTarget):
    """One layer, which is made of slices of one or more of the model's layers."""

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
        rank = 0
        for placed, update in changed:
            outputs = slice(placed.first, placed.first + placed.size)
            b[rank : rank + len(update.b), outputs] = update.b
            rank += len(update.b)
            if bias is not None and update.bias is not None:
                bias[outputs] = update.bias
        return LoraUpdate(a.to(self._dtype), b.to(self._dtype), None if bias is None else bias.to(self._dtype))

    def write(self, slot: int, prepared: LoraUpdate | None) -> None:
        self._updates.write(slot, prepared)


class LayerFactory:
    """Makes layers from the weights of one model.

    slots: adapter slots of the device; 0: adapters are off, and no slice is recorded.
    int8: whether `encoder_linear` layers multiply in 8 bits.
    threads: on a CPU: the layers' results have the same bits with each of these numbers of threads, independent of the
        other rows of a batch; empty: results may differ by rounding.
    batch_invariant: whether this holds for all layers that were made so far.
    own_shapes: see `OwnShapes`.
    padded: make layers for the padded layout, in which one operation computes all texts, and `threads` are ignored;
        None: if the model is not on a CPU.
    kernels: of encoders and heads.
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
        self.sinks: list[AdapterTarget] = []
        self._int8 = int8
        self._names = {module: name for name, module in model.named_modules()}
        self._adaptable: set[str] = set()
        # Layers keep this, which must not keep the factory: it holds the model.
        self.own_shapes: OwnShapes = partial(torch_threads, 1) if self.threads else nullcontext

    def encoder_linear(
        self, *sources: nn.Linear | WeightSlice, activation: Activation = "none", residual: bool = False
    ) -> Linear:
        """`linear`, inside an encoder: in 8 bits, if `int8`."""
        return self.linear(*sources, activation=activation, residual=residual, int8=self._int8)

    def linear(
        self,
        *sources: nn.Linear | WeightSlice,
        activation: Activation = "none",
        residual: bool = False,
        int8: bool = False,
    ) -> Linear:
        """One layer for several sources that have the same input: their outputs are stacked. See `Linear`.

        Adapters do not change sources that are no layers of the model."""
        slices = [WeightSlice(source) if isinstance(source, nn.Linear) else source for source in sources]
        weights = [one.weight for one in slices]
        weight = weights[0] if len(weights) == 1 else torch.cat(weights)
        named = all(one.layer in self._names for one in slices)
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
        self.batch_invariant &= layer.batch_invariant
        return layer

    def adapt(self, module: nn.Module) -> None:
        """Make the linear layers of another library's module adaptable, in place (see `on_slot`)."""
        if not self.slots:
            return
        for parent in list(module.modules()):
            # MultiheadAttention does not call its linear layer; an AdaptedLinear is adapted already.
            if not isinstance(parent, nn.MultiheadAttention | AdaptedLinear):
                for attribute, _ in list(parent.named_children()):
                    self.adapt_child(parent, attribute)

    def adapt_child(self, parent: nn.Module, attribute: str) -> None:
        """`adapt` a module's child, if it is a linear layer."""
        layer = getattr(parent, attribute)
        if self.slots and type(layer) is nn.Linear:
            setattr(parent, attribute, AdaptedLinear(layer, self._record([WeightSlice(layer)], layer.weight)))

    def name_of(self, module: nn.Module) -> str:
        """The module's name in the model."""
        name: str = self._names[module]
        return name

    def describe(self) -> dict[str, tuple[int, int] | str]:
        """Every module of the model: (in, out) of a linear layer that adapters may change, else why not."""
        return {name: self._describe(module, name) for module, name in self._names.items() if name}

    def _describe(self, module: nn.Module, name: str) -> tuple[int, int] | str:
        if not isinstance(module, nn.Linear):
            return f"not a linear layer: {type(module).__name__}"
        if name not in self._adaptable:
            return "a layer that inference does not use, or not as a linear layer"
        return module.in_features, module.out_features

    def _record(self, slices: Sequence[WeightSlice], weight: torch.Tensor) -> SlotUpdates:
        """Record that a new layer is made of these slices; what adapters add to it. weight: of the layer."""
        placed: list[_PlacedSlice] = []
        first = 0
        for one in slices:
            name, size = self._names[one.layer], len(one.weight)
            placed.append(_PlacedSlice(name, first, size, replace(one, layer=_NO_LAYER)))
            self._adaptable.add(name)
            first += size
        updates = SlotUpdates(weight.shape[1], weight.shape[0], self.slots, weight, padded=self.padded)
        self.sinks.append(LinearSink(updates, placed, len(weight), weight.dtype))
        return updates


def without(module: nn.Module, *names: str) -> nn.Module:
    """A copy of the module without these children, with the same weights. gliner's models skip missing children."""
    less = copy(module)
    less._modules = {name: child for name, child in module._modules.items() if name not in names}
    return less


_NO_LAYER = nn.Linear(1, 1, device="meta")


def _stacked_bias(slices: Sequence[WeightSlice], weights: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """The biases of all slices; None where none has one."""
    biases = [one.bias for one in slices]
    if all(bias is None for bias in biases):
        return None
    filled = [
        weight.new_zeros(len(weight)) if bias is None else bias for bias, weight in zip(biases, weights, strict=True)
    ]
    return filled[0] if len(filled) == 1 else torch.cat(filled)
