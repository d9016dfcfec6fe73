"""The queries of GLiNER2's fields, one per instance of their task: gliner2's counting layers (three kinds), packed.

The state of a GRU starts as a field's embedding, and step n reads the embedding of the number n: the state after step n
belongs to instance n. A second part converts states to queries: a projection, experts, or a transformer that attends
between the fields of an instance, depending on the kind.

Except for this attention, rows do not depend on each other. So the fields of all texts are computed together, in layers
where a row's bits do not depend on the other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from gliner_bento.engine.layers.factory import LayerFactory
from gliner_bento.engine.layers.linear import feed_forward
from gliner_bento.engine.layers.norm import Norm
from gliner_bento.engine.layers.packing import softmax_attention
from gliner_bento.engine.layers.projection import Projection, linear_layers
from gliner_bento.engine.layers.rows import SlotRows, TextRows


class FieldGroup(NamedTuple):
    """The numbers of fields and of instances of a task. The embeddings of its fields are consecutive rows."""

    fields: int
    instances: int

    @property
    def queries(self) -> int:
        """The number of queries. They are ordered by instance, then by field."""
        return self.fields * self.instances


Queries = Callable[[torch.Tensor, torch.Tensor, Sequence[FieldGroup], SlotRows | None], torch.Tensor]
"""(states of the GRU (Q, D), embeddings of their fields (Q, D), groups, rows of each slot) -> queries (Q, D)."""


class CountQueries:
    """Converts embeddings of fields to queries."""

    def __init__(self, module: Any, layers: LayerFactory) -> None:
        self.name = f"packed {type(module).__name__}"
        self._gru = _Gru(module.gru, module.pos_embedding.weight.detach(), layers)
        self._to_queries = _TO_QUERIES[type(module).__name__](module, layers)

    def __call__(self, fields: torch.Tensor, groups: Sequence[FieldGroup], query_rows: TextRows) -> torch.Tensor:
        """fields: (N, D), of all groups. query_rows: how many queries each text has. Returns (Q, D)."""
        steps = [group.instances for group in groups for _ in range(group.fields)]
        states = self._gru(fields, steps)
        field_of_query: list[int] = []
        step_of_query: list[int] = []
        first = 0
        for group in groups:
            for instance in range(group.instances):
                field_of_query += range(first, first + group.fields)
                step_of_query += [instance] * group.fields
            first += group.fields
        row = torch.tensor(field_of_query, device=fields.device)
        step = torch.tensor(step_of_query, device=fields.device)
        return self._to_queries(states[step, row], fields[row], groups, query_rows.slot_rows)


class _Gru:
    """gliner2's `CompileSafeGRU`, whose inputs are embeddings of the numbers of instances."""

    def __init__(self, gru: Any, inputs: torch.Tensor, layers: LayerFactory) -> None:
        self._inputs = (inputs @ gru.weight_ih_l0.T + gru.bias_ih_l0).detach().float()
        self._recur = layers.linear(_linear(gru.weight_hh_l0, gru.bias_hh_l0))

    def __call__(self, start: torch.Tensor, steps: Sequence[int]) -> torch.Tensor:
        """start: (N, D). steps: number of steps per row. Returns each row's state after each step, (steps, N, D)."""
        states = start.new_zeros(max(steps, default=0), *start.shape)
        state = start
        active = torch.arange(len(start), device=start.device)
        for step in range(len(states)):
            unfinished = [row for row, count in enumerate(steps) if count > step]
            if unfinished != active.tolist():
                active = torch.tensor(unfinished, device=start.device)
                state = states[step - 1, active]
            state = self._next(self._inputs[step], state)
            states[step, active] = state
        return states

    def _next(self, inputs: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        of_input, of_state = inputs.chunk(3), self._recur(state).float().chunk(3, dim=-1)
        reset, update = _sigmoid(of_input[0] + of_state[0]), _sigmoid(of_input[1] + of_state[1])
        new = _sigmoid(2 * (of_input[2] + reset * of_state[2])) * 2 - 1  # tanh
        return ((1 - update) * new + update * state).to(state.dtype)


class _Projected:
    """The second part of gliner2's `CountLSTM`."""

    def __init__(self, module: Any, layers: LayerFactory) -> None:
        self._project = Projection(module.projector, layers)

    def __call__(
        self, states: torch.Tensor, fields: torch.Tensor, groups: Sequence[FieldGroup], slot_rows: SlotRows | None
    ) -> torch.Tensor:
        return self._project(torch.cat([states, fields], dim=-1), slot_rows)


class _Experts:
    """The second part of gliner2's `CountLSTMoE`."""

    def __init__(self, module: Any, layers: LayerFactory) -> None:
        first, last = linear_layers(module.router)
        self._route, self._gates = layers.linear(first, activation="gelu"), layers.linear(last)
        self._expand = layers.linear(
            _linear(module.w1.transpose(1, 2).flatten(0, 1), module.b1.flatten()), activation="gelu"
        )
        self._reduce = [
            layers.linear(_linear(weight.T, bias))
            for weight, bias in zip(module.w2.detach(), module.b2.detach(), strict=True)
        ]

    def __call__(
        self, states: torch.Tensor, fields: torch.Tensor, groups: Sequence[FieldGroup], slot_rows: SlotRows | None
    ) -> torch.Tensor:
        gates = self._gates(self._route(states, slot_rows), slot_rows).float().softmax(-1).to(states.dtype)
        inner = self._expand(states).chunk(len(self._reduce), dim=-1)
        queries = torch.zeros_like(states)
        for number, reduce in enumerate(self._reduce):
            queries = queries + gates[:, number : number + 1] * reduce(inner[number].contiguous())
        return queries


class _Attending:
    """The second part of gliner2's `CountLSTMv2`."""

    def __init__(self, module: Any, layers: LayerFactory) -> None:
        transformer = module.transformer
        self._in = layers.linear(transformer.in_projector)
        self._layers = [_PostNorm(layer, layers) for layer in transformer.transformer.layers]
        *hidden, last = (layer for layer in transformer.out_projector if isinstance(layer, nn.Linear))
        self._out = [*(layers.linear(layer, activation="relu") for layer in hidden), layers.linear(last)]

    def __call__(
        self, states: torch.Tensor, fields: torch.Tensor, groups: Sequence[FieldGroup], slot_rows: SlotRows | None
    ) -> torch.Tensor:
        inputs = states + fields
        x = self._in(inputs, slot_rows)
        for layer in self._layers:
            x = layer(x, groups, slot_rows)
        x = torch.cat([x, inputs], dim=-1)
        for linear in self._out:
            x = linear(x, slot_rows)
        return x


class _PostNorm:
    """torch's `TransformerEncoderLayer` over the fields of each instance."""

    def __init__(self, layer: Any, layers: LayerFactory) -> None:
        attention = layer.self_attn
        self._own_shapes = layers.own_shapes
        self._heads = attention.num_heads
        self._qkv = layers.linear(_linear(attention.in_proj_weight, attention.in_proj_bias))
        self._project_context = layers.linear(attention.out_proj, residual=True)
        self._expand = layers.linear(layer.linear1, activation="relu")
        self._reduce = layers.linear(layer.linear2, residual=True)
        self._norms = Norm(layer.norm1), Norm(layer.norm2)

    def __call__(self, x: torch.Tensor, groups: Sequence[FieldGroup], slot_rows: SlotRows | None) -> torch.Tensor:
        qkv = self._qkv(x).view(len(x), 3, self._heads, -1)
        contexts = []
        for group, part in zip(groups, qkv.split_with_sizes([group.queries for group in groups]), strict=True):
            q, k, v = part.view(group.instances, group.fields, *part.shape[1:]).unbind(2)
            with self._own_shapes():
                contexts.append(softmax_attention(q, k, v, None).reshape(group.queries, -1))
        x = self._norms[0](self._project_context.plus(torch.cat(contexts), x, slot_rows))
        return self._norms[1](feed_forward(x, self._expand, self._reduce, slot_rows))


_TO_QUERIES: Mapping[str, Callable[[Any, LayerFactory], Queries]] = {
    "CountLSTM": _Projected,
    "CountLSTMv2": _Attending,
    "CountLSTMoE": _Experts,
}


def _linear(weight: torch.Tensor, bias: torch.Tensor) -> nn.Linear:
    """A linear layer of parameters that do not belong to an `nn.Linear` of the model, so adapters cannot change it."""
    layer = nn.Linear(1, 1, device="meta")
    layer.weight = nn.Parameter(weight.detach(), requires_grad=False)
    layer.bias = nn.Parameter(bias.detach(), requires_grad=False)
    return layer


def _sigmoid(x: torch.Tensor) -> torch.Tensor:
    """Computed as in `decode.probabilities`, so that the bits do not depend on the position in the tensor."""
    return torch.exp(-x).add_(1).reciprocal_()
