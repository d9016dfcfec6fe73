"""DeBERTa v2 and v3: disentangled attention, over exactly the relative positions that a row has.

A score is q_i · k_j plus q_i · K[d] plus k_j · Q[d], where d is the distance from j to i, and K and Q are projections
of an embedding for each bucket of distances. transformers multiplies with all buckets and gathers. Here K and Q are
laid out by distance once, for all distances within reach:

    q · K^T      columns d = n-1 … -(n-1)                      what row i needs starts n-1-i columns in:

    i=0   . . . . [ . . . . . ]                                read with a row stride one shorter than the row is long,
    i=1   . . . [ . . . . . ] .                                the parts in brackets are a matrix (i, j): no gather
    i=2   . . [ . . . . . ] . .

The same with k · Q^T, its columns in the other order, and transposed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch.nn import functional as F
from transformers.models.deberta_v2.modeling_deberta_v2 import build_relative_position

from gliner_bento.engine.encoder.layer import Norm, PostNormLayer, has_known_activation
from gliner_bento.engine.kernels import EAGER, Kernels, skewed
from gliner_bento.engine.linear import Linear, stacked
from gliner_bento.engine.packing import Layout

# Distances whose projections are kept ready; a longer row's are made when it comes.
_REACH = 512


class PackedDeberta:
    """A packed encoder (see `encoder`)."""

    def __init__(self, model: Any, *, int8: bool = False, kernels: Kernels = EAGER, reach: int = _REACH) -> None:
        embeddings = model.embeddings
        self._words = embeddings.word_embeddings.weight.detach()
        self._projection = Linear.of(embeddings.embed_proj) if embeddings.embed_proj is not None else None
        self._norm = Norm(embeddings.LayerNorm)
        positions = model.encoder.get_rel_embedding().detach()
        self._layers = []
        for layer in model.encoder.layer:
            module = layer.attention.self
            attention = DisentangledAttention(module, positions, reach, kernels)
            qkv = Linear(*scaled_qkv(module), int8=int8)
            self._layers.append(
                PostNormLayer(layer, qkv, module.num_attention_heads, attention.attend, model.config.hidden_act, int8)
            )

    @staticmethod
    def can_be(model: Any) -> bool:
        """Whether this is the packed form of `model`."""
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
            x = self._projection(x)
        x = self._norm(x)
        for layer in self._layers:
            x = layer(x, layout)
        return x


def scale_of(attention: Any) -> float:
    """What a score is divided by."""
    terms = 1 + ("c2p" in attention.pos_att_type) + ("p2c" in attention.pos_att_type)
    return float((attention.attention_head_size * terms) ** 0.5)


def scaled_qkv(attention: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Weights and biases of queries, keys and values, with the scale of the scores in the queries."""
    weight, bias = stacked([attention.query_proj, attention.key_proj, attention.value_proj])
    weight, bias = weight.detach().clone(), None if bias is None else bias.detach().clone()
    for part in (weight, bias):
        if part is not None:
            part[: attention.all_head_size] /= scale_of(attention)
    return weight, bias


class DisentangledAttention:
    """One layer's attention over queries that are scaled already. Holds K and Q by distance, (H, distances, D).

    reach: length of the rows whose distances are kept ready.
    """

    def __init__(self, attention: Any, positions: torch.Tensor, reach: int, kernels: Kernels) -> None:
        self._span = attention.pos_ebd_size
        self._buckets = attention.position_buckets, attention.max_relative_positions
        self._keys, self._queries = self._project(attention, positions[: 2 * self._span])
        self._reach = reach
        self._near = self._by_distance(reach)
        self._disentangled_bias = kernels.disentangled_bias

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """See `packing.Attend`."""
        rows, length = q.shape[:2]
        keys, queries = self._within(length)
        if keys is not None and queries is not None:
            bias = self._disentangled_bias(products(q, keys), products(k, queries), rows, length)
        elif keys is not None:
            bias = skewed(products(q, keys), rows, length)
        else:
            assert queries is not None
            bias = skewed(products(k, queries), rows, length).transpose(2, 3)
        if mask is not None:
            bias = bias.masked_fill(~mask[:, None, None, :], torch.finfo(q.dtype).min)
        contexts = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=bias, scale=1.0
        )
        return contexts.transpose(1, 2)

    def _within(self, length: int) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """K by falling and Q by rising distance, for a row of `length` tokens: (H, 2 * length - 1, D)."""
        if length > self._reach:
            return self._by_distance(length)
        middle = slice(self._reach - length, self._reach + length - 1)
        keys, queries = self._near
        return None if keys is None else keys[:, middle], None if queries is None else queries[:, middle]

    def _by_distance(self, reach: int) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        rising = buckets_by_distance(reach, *self._buckets, self._span)
        keys, queries = self._keys, self._queries
        return (
            None if keys is None else keys[:, rising.flip(0).to(keys.device)].contiguous(),
            None if queries is None else queries[:, rising.to(queries.device)].contiguous(),
        )

    @staticmethod
    def _project(attention: Any, positions: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Keys and scaled queries of each bucket, (H, buckets, D); None where scores do not have this term."""
        shared = attention.share_att_key
        made: list[torch.Tensor | None] = []
        for term, own, common, scale in (
            ("c2p", "pos_key_proj", "key_proj", 1.0),
            ("p2c", "pos_query_proj", "query_proj", scale_of(attention)),
        ):
            if term not in attention.pos_att_type:
                made.append(None)
                continue
            projected = getattr(attention, common if shared else own)(positions) / scale
            made.append(projected.detach().unflatten(1, (attention.num_attention_heads, -1)).transpose(0, 1))
        return made[0], made[1]


@lru_cache(maxsize=64)
def buckets_by_distance(reach: int, position_buckets: int, max_relative_positions: int, span: int) -> torch.Tensor:
    """The bucket of each distance from -(reach - 1) to reach - 1; the same in all layers of a model."""
    one, all_ = torch.empty(1, 0), torch.empty(reach, 0)
    behind = build_relative_position(all_, one, position_buckets, max_relative_positions)
    ahead = build_relative_position(one, all_, position_buckets, max_relative_positions)
    return (torch.cat([ahead.flatten()[1:].flip(0), behind.flatten()]) + span).clamp(0, 2 * span - 1)


def products(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Of `x` (B, n, H, D) with the table (H, 2n - 1, D): shape (H, B * n, 2n - 1)."""
    rows, length, heads, width = x.shape
    return torch.bmm(x.permute(2, 0, 1, 3).reshape(heads, rows * length, width), table.transpose(1, 2))
