"""Which layers of a model adapters may change, and what of ours each of them became.

A forward of ours computes with pieces of a model's weights: side by side, split, transposed, scaled. An adapter names
the model's layers. `Layers` makes the pieces and remembers where they went, so that an update reaches all of them:

    W' = W + B A    ──▶    W'[:, part] = W[:, part] + B A[:, part]        (a piece of the inputs)
                           W'^T = W^T + A^T B^T                            (transposed: A and B change places)
                           [W1'; W2'] = [W1; W2] + [B1 0; 0 B2] [A1; A2]   (side by side)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import torch
from torch import nn

from gliner_bento.adapters.adapter import LowRank
from gliner_bento.adapters.device import Sink
from gliner_bento.adapters.linear import AdaptedLinear, Update, Updates
from gliner_bento.engine.linear import Activation, Linear

Content = Literal["weight", "transposed", "bias"]
_all = partial(slice, None)


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a linear layer with weight W (out, in), as the weight of a layer of ours.

    content: weight: W[outputs, inputs], with the bias if `biased`; transposed: W[:, inputs]^T, without; bias: the bias
        as a weight (1, out), for `p . b`.
    scale: what the piece is multiplied with.
    """

    layer: nn.Linear
    content: Content = "weight"
    outputs: slice = field(default_factory=_all)
    inputs: slice = field(default_factory=_all)
    biased: bool = True
    scale: float = 1.0

    @property
    def weight(self) -> torch.Tensor:
        """(out, in) of our layer."""
        if self.content == "bias":
            return self.layer.bias.detach()[None]
        if self.content == "transposed":
            return self.layer.weight.detach()[:, self.inputs].T
        piece = self.layer.weight.detach()[self.outputs, self.inputs]
        return piece if self.scale == 1.0 else piece * self.scale

    @property
    def bias(self) -> torch.Tensor | None:
        """(out) of our layer, or None."""
        if self.content != "weight" or not self.biased or self.layer.bias is None:
            return None
        piece = self.layer.bias.detach()[self.outputs]
        return piece if self.scale == 1.0 else piece * self.scale


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part without its layer: what an update of the layer `name` becomes in ours, from output `first` on."""

    name: str
    first: int
    size: int
    part: Part

    def update(self, given: LowRank) -> Update | None:
        """None: this piece is not changed."""
        part = self.part
        if part.content == "bias":
            return None if given.bias is None else Update(given.bias[:, None], given.bias.new_ones(1, 1), None)
        if part.content == "transposed":
            return Update(given.b, given.a[:, part.inputs], None)
        bias = given.bias[part.outputs] * part.scale if part.biased and given.bias is not None else None
        return Update(given.a[:, part.inputs].T, given.b[part.outputs].T * part.scale, bias)


class LinearSink:
    """A layer of ours, of pieces of one or more of the model's."""

    def __init__(self, updates: Updates, pieces: Sequence[_Piece], outputs: int, dtype: torch.dtype) -> None:
        self._updates = updates
        self._pieces = pieces
        self._outputs = outputs
        self._dtype = dtype

    def prepare(self, updates: Mapping[str, LowRank]) -> Update | None:
        """See `Sink`."""
        given = [(piece, piece.update(updates[piece.name])) for piece in self._pieces if piece.name in updates]
        found = [(piece, update) for piece, update in given if update is not None]
        if not found:
            return None
        a = torch.cat([update.a for _, update in found], dim=1)
        b = a.new_zeros(a.shape[1], self._outputs)
        bias = a.new_zeros(self._outputs) if any(update.bias is not None for _, update in found) else None
        rank = 0
        for piece, update in found:
            outputs = slice(piece.first, piece.first + piece.size)
            b[rank : rank + len(update.b), outputs] = update.b
            rank += len(update.b)
            if bias is not None and update.bias is not None:
                bias[outputs] = update.bias
        return Update(a.to(self._dtype), b.to(self._dtype), None if bias is None else bias.to(self._dtype))

    def put(self, slot: int, prepared: Update | None) -> None:
        """See `Sink`."""
        self._updates.put(slot, prepared)


class Layers:
    """Makes layers of ours for one model, and knows its layers by name.

    slots: adapters that may be on the device at once; 0: none, and nothing is remembered.
    int8: whether `encoder` layers multiply in 8 bits.
    """

    def __init__(self, model: nn.Module, *, slots: int = 0, int8: bool = False) -> None:
        self.slots = slots
        self.sinks: list[Sink] = []
        self._int8 = int8
        self._names = {module: name for name, module in model.named_modules()}
        self._adaptable: set[str] = set()

    def linear(self, *parts: nn.Linear | Part, activation: Activation = "none") -> Linear:
        """One layer for several pieces that read the same input: their outputs stand side by side."""
        return self._linear(parts, activation, int8=False)

    def encoder(self, *parts: nn.Linear | Part, activation: Activation = "none") -> Linear:
        """`linear`, inside an encoder."""
        return self._linear(parts, activation, int8=self._int8)

    def _linear(self, given: Sequence[nn.Linear | Part], activation: Activation, *, int8: bool) -> Linear:
        parts = [Part(part) if isinstance(part, nn.Linear) else part for part in given]
        weights = [part.weight for part in parts]
        weight = weights[0] if len(weights) == 1 else torch.cat(weights)
        updates = self._updates(weight) if self.slots else None
        if updates is not None:
            pieces, first = [], 0
            for part, piece in zip(parts, weights, strict=True):
                name = self._names[part.layer]
                pieces.append(_Piece(name, first, len(piece), replace(part, layer=_NO_LAYER)))
                self._adaptable.add(name)
                first += len(piece)
            self.sinks.append(LinearSink(updates, pieces, len(weight), weight.dtype))
        return Linear(weight, _side_by_side(parts, weights), activation=activation, int8=int8, updates=updates)

    def adapt(self, module: nn.Module) -> None:
        """Make the linear layers of a module that is not ours adaptable, in place (see `on_slot`)."""
        if not self.slots:
            return
        for parent in list(module.modules()):
            # The one reads its layer's weight itself, the other has been here before.
            if not isinstance(parent, nn.MultiheadAttention | AdaptedLinear):
                for attribute, _ in list(parent.named_children()):
                    self.adapt_child(parent, attribute)

    def adapt_child(self, parent: nn.Module, attribute: str) -> None:
        """`adapt` a module's child, if it is a linear layer."""
        layer = getattr(parent, attribute)
        if self.slots and type(layer) is nn.Linear:
            name, updates = self._names[layer], self._updates(layer.weight)
            piece = _Piece(name, 0, layer.out_features, Part(_NO_LAYER))
            self.sinks.append(LinearSink(updates, [piece], layer.out_features, layer.weight.dtype))
            self._adaptable.add(name)
            setattr(parent, attribute, AdaptedLinear(layer, updates))

    def name_of(self, module: nn.Module) -> str:
        """Its name in the model."""
        name: str = self._names[module]
        return name

    def described(self) -> dict[str, tuple[int, int] | str]:
        """Every module of the model: (in, out) of a linear layer that adapters may change, else why not."""
        return {name: self._described(module, name) for module, name in self._names.items() if name}

    def _described(self, module: nn.Module, name: str) -> tuple[int, int] | str:
        if not isinstance(module, nn.Linear):
            return f"not a linear layer: {type(module).__name__}"
        if name not in self._adaptable:
            return "a layer that the answers are not computed with, or not as a linear layer"
        return module.in_features, module.out_features

    def _updates(self, weight: torch.Tensor) -> Updates:
        return Updates(weight.shape[1], weight.shape[0], self.slots, weight)


_NO_LAYER = nn.Linear(1, 1, device="meta")


def _side_by_side(parts: Sequence[Part], weights: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Biases of all parts; None where none has one."""
    biases = [part.bias for part in parts]
    if all(bias is None for bias in biases):
        return None
    filled = [
        weight.new_zeros(len(weight)) if bias is None else bias for bias, weight in zip(biases, weights, strict=True)
    ]
    return filled[0] if len(filled) == 1 else torch.cat(filled)
