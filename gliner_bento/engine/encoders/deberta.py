"""DeBERTa v2 and v3: disentangled attention, over exactly the relative positions that a text has.

A score is q_i · k_j plus q_i · K[d] plus k_j · Q[d], where d = i - j, and K and Q are projections of an embedding per
bucket of distances. transformers multiplies with all buckets and gathers. Here, K and Q are laid out by distance once,
for all distances within reach. For n tokens, q · K^T has columns d = n-1 … -(n-1):

    i=0   . . . . [ . . . . . ]
    i=1   . . . [ . . . . . ] .
    i=2   . . [ . . . . . ] . .

The scores of row i start at column n-1-i. With a row stride one shorter than the row length, the bracketed parts are a
matrix (i, j), so nothing is gathered. k · Q^T has its columns in rising order, and the matrix (j, i) is transposed.

An adapter that changes the layers which project positions changes K and Q, for its texts only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch.nn import functional as F
from transformers.models.deberta_v2.modeling_deberta_v2 import build_relative_position

from gliner_bento.adapters.adapter import LowRank
from gliner_bento.adapters.device import AdapterSink
from gliner_bento.engine.encoders.post_norm import PostNormLayer, has_known_activation
from gliner_bento.engine.layers.factory import LayerFactory, WeightSlice
from gliner_bento.engine.layers.kernels import skewed
from gliner_bento.engine.layers.lora import LoraUpdate
from gliner_bento.engine.layers.norm import Norm
from gliner_bento.engine.layers.packing import Block, Layout, Slots, softmax_attention

# K and Q are precomputed for texts up to this many tokens, and computed per batch for longer ones.
_REACH = 512


class PackedDeberta:
    """A packed encoder (see `packed`)."""

    def __init__(self, model: Any, layers: LayerFactory, reach: int = _REACH) -> None:
        if layers.padded:
            reach += 1  # see `PositionTable.columns`
        embeddings = model.embeddings
        self._words = embeddings.word_embeddings.weight.detach()
        self._projection = layers.linear(embeddings.embed_proj) if embeddings.embed_proj is not None else None
        self._norm = Norm(embeddings.LayerNorm)
        positions = model.encoder.get_rel_embedding().detach()
        self._layers = []
        for layer in model.encoder.layer:
            module = layer.attention.self
            attend = DisentangledAttention(module, positions, layers, reach).attend
            queries = WeightSlice(module.query_proj, scale=1 / scale_of(module))
            qkv = layers.encoder_linear(queries, module.key_proj, module.value_proj)
            self._layers.append(
                PostNormLayer(layer, layers, qkv, module.num_attention_heads, attend, model.config.hidden_act)
            )

    @staticmethod
    def supports(model: Any) -> bool:
        """Whether this class can run `model`."""
        if type(model).__name__ != "DebertaV2Model":
            return False
        embeddings, encoder = model.embeddings, model.encoder
        return (
            embeddings.position_embeddings is None
            and embeddings.token_type_embeddings is None
            and encoder.conv is None
            and encoder.relative_attention
            and bool(set(encoder.layer[0].attention.self.pos_att_type) & {"c2p", "p2c"})
            and model.z_steps <= 1
            and has_known_activation(model.config)
        )

    def __call__(self, token_ids: torch.Tensor, layout: Layout) -> torch.Tensor:
        """(T,) -> (T, D)."""
        x = F.embedding(token_ids, self._words)
        if self._projection is not None:
            x = self._projection(x, layout.slot_rows)
        x = self._norm(x)
        for layer in self._layers:
            x = layer(x, layout)
        return x


def scale_of(attention: Any) -> float:
    """The divisor of the scores of transformers' `attention` module."""
    terms = 1 + ("c2p" in attention.pos_att_type) + ("p2c" in attention.pos_att_type)
    return float((attention.attention_head_size * terms) ** 0.5)


class DisentangledAttention:
    """One layer's attention, for queries that are already scaled. Holds K and Q by distance (see `PositionTable`).

    attention: transformers' module. positions: embeddings (buckets, D). reach: see `_REACH`.
    """

    def __init__(self, attention: Any, positions: torch.Tensor, layers: LayerFactory, reach: int) -> None:
        span, heads = attention.pos_ebd_size, attention.num_attention_heads
        buckets = Buckets(span, attention.position_buckets, attention.max_relative_positions)
        key_name, query_name = "pos_key_proj", "pos_query_proj"
        if attention.share_att_key:
            key_name, query_name = "key_proj", "query_proj"
        terms = attention.pos_att_type
        self._keys = self._queries = None
        if "c2p" in terms:
            projection = WeightSlice(getattr(attention, key_name))
            self._keys = PositionTable(projection, positions, buckets, layers, heads=heads, reach=reach, rising=False)
        if "p2c" in terms:
            projection = WeightSlice(getattr(attention, query_name), scale=1 / scale_of(attention))
            self._queries = PositionTable(projection, positions, buckets, layers, heads=heads, reach=reach, rising=True)
        self._disentangled_bias = layers.kernels.disentangled_bias

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, block: Block) -> torch.Tensor:
        """See `packing.Attend`."""
        multiply = products_together if block.together else products
        if self._keys is not None and self._queries is not None:
            c2p, p2c = multiply(q, self._keys.columns(block)), multiply(k, self._queries.columns(block))
            bias = self._disentangled_bias(c2p, p2c)
        elif self._keys is not None:
            bias = skewed(multiply(q, self._keys.columns(block)))
        else:
            assert self._queries is not None
            bias = skewed(multiply(k, self._queries.columns(block))).transpose(2, 3)
        if block.padding is not None:
            bias = bias.masked_fill(block.padding, torch.finfo(q.dtype).min)
        return softmax_attention(q, k, v, bias, scale=1.0)


class PositionTable(AdapterSink):
    """K or Q of one layer: (H, distances, S), projected position embeddings, ordered by rising or by falling distance.

    H: heads. S: head size. positions, reach: see `DisentangledAttention`. projection: the weight for positions.
    """

    def __init__(
        self,
        projection: WeightSlice,
        positions: torch.Tensor,
        buckets: Buckets,
        layers: LayerFactory,
        *,
        heads: int,
        reach: int,
        rising: bool,
    ) -> None:
        self._positions = positions[: 2 * buckets.span]
        self._buckets = buckets
        self._scale = projection.scale
        self._heads = heads
        self._reach = reach
        self._rising = rising
        self._by_bucket = (
            F.linear(self._positions, projection.layer.weight, projection.layer.bias).detach() * projection.scale
        )
        self._within_reach = self._by_distance(reach, self._by_bucket)
        self._own_shapes = layers.own_shapes
        self._updates: list[LoraUpdate | None] = [None] * layers.slots
        if layers.slots:
            self._name = layers.name_of(projection.layer)
            layers.sinks.append(self)

    def columns(self, block: Block) -> torch.Tensor:
        """The table of a block's texts. If the texts are multiplied together, the table has one more distance at its
        end, which is not used, because a GPU multiplies an even number of columns faster."""
        if not block.together:
            return self(block.length, block.slots)
        slots_of_empty: Slots = (None,) * (block.texts - len(block.slots))
        slots = (*block.slots, *slots_of_empty) if block.slots else ()
        return self(block.length + 1, slots)[..., 1:, :]  # 2 * (length + 1) - 1 distances, less the first one

    def __call__(self, length: int, slots: Slots) -> torch.Tensor:
        """For texts of `length` tokens: (H, 2 * length - 1, S), or (texts, H, …, S) if their adapters differ."""
        base = self._of_length(length)
        changed = {slot for slot in slots if slot is not None and self._updates[slot] is not None}
        if not changed:
            return base
        tables: dict[int | None, torch.Tensor] = dict.fromkeys(slots, base)
        tables |= {slot: base + self._added(length, slot) for slot in changed}
        return tables[slots[0]] if len(tables) == 1 else torch.stack([tables[slot] for slot in slots])

    def prepare(self, updates: Mapping[str, LowRank]) -> LoraUpdate | None:
        """See `AdapterSink`. The result's `a` is (buckets, r), in float32; `_added` makes tables of it."""
        low_rank = updates.get(self._name)
        if low_rank is None:
            return None
        a = self._positions.detach().cpu().float() @ low_rank.a.T
        return LoraUpdate(a, low_rank.b.T * self._scale, None if low_rank.bias is None else low_rank.bias * self._scale)

    def write(self, slot: int, prepared: LoraUpdate | None) -> None:
        self._updates[slot] = None if prepared is None else prepared.to(self._positions.device)

    def _added(self, length: int, slot: int) -> torch.Tensor:
        """What an adapter adds to the table of texts of `length` tokens."""
        update = self._updates[slot]
        assert update is not None
        with self._own_shapes():
            by_distance = update.a[self._bucket_of_distance(length)] @ update.b
        if update.bias is not None:
            by_distance += update.bias
        return self._by_head(by_distance.to(self._positions.dtype))

    def _of_length(self, length: int) -> torch.Tensor:
        """The base model's table for texts of `length` tokens, (H, 2 * length - 1, S)."""
        if length > self._reach:
            return self._by_distance(length, self._by_bucket)
        return self._within_reach[:, self._reach - length : self._reach + length - 1]

    def _by_distance(self, length: int, by_bucket: torch.Tensor) -> torch.Tensor:
        return self._by_head(by_bucket)[:, self._bucket_of_distance(length)].contiguous()

    def _by_head(self, table: torch.Tensor) -> torch.Tensor:
        """(N, H * S) -> (H, N, S)."""
        return table.view(len(table), self._heads, -1).transpose(0, 1)

    def _bucket_of_distance(self, length: int) -> torch.Tensor:
        """The bucket of each distance, (2 * length - 1,), in this table's order."""
        reach = max(length, self._reach)  # so that `Buckets.by_distance` is cached once for all shorter texts
        rising = self._buckets.by_distance(reach, self._positions.device)[reach - length : reach + length - 1]
        return rising if self._rising else rising.flip(0)


@dataclass(frozen=True)
class Buckets:
    """Maps distances to buckets, of which there are 2 * `span`. Other fields: as in transformers' configuration."""

    span: int
    position_buckets: int
    max_relative_positions: int

    @lru_cache(maxsize=64)  # noqa: B019 - the same for all layers of a model, and small
    def by_distance(self, reach: int, device: torch.device) -> torch.Tensor:
        """The bucket of each distance from -(reach - 1) to reach - 1."""
        single, full = torch.empty(1, 0), torch.empty(reach, 0)  # the function reads only the lengths
        behind = build_relative_position(full, single, self.position_buckets, self.max_relative_positions)
        ahead = build_relative_position(single, full, self.position_buckets, self.max_relative_positions)
        rising = torch.cat([ahead.flatten()[1:].flip(0), behind.flatten()])
        return (rising + self.span).clamp(0, 2 * self.span - 1).to(device)


def products(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Multiply `x` (B, n, H, S) by one table (H, 2n - 1, S) or one per text (B, H, 2n - 1, S): (B, H, n, 2n - 1).

    Multiplies text by text, because the shape of a product, and so its rounding, must not depend on the other texts.
    """
    texts, length, heads, _ = x.shape
    tables = [table] * texts if table.dim() == 3 else table.unbind()
    scores = x.new_empty(texts, heads, length, 2 * length - 1)
    for text_scores, text_x, text_table in zip(scores, x.transpose(1, 2), tables, strict=True):
        torch.bmm(text_x, text_table.transpose(1, 2), out=text_scores)
    return scores


def products_together(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """As `products`, with one multiplication for all texts, and any number of columns: (B, H, n, columns)."""
    if table.dim() == 4:
        return x.transpose(1, 2) @ table.transpose(2, 3)
    texts, length, heads, head_size = x.shape
    scores = torch.bmm(x.permute(2, 0, 1, 3).reshape(heads, texts * length, head_size), table.transpose(1, 2))
    return scores.view(heads, texts, length, -1).transpose(0, 1)
