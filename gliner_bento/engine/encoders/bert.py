"""BERT, RoBERTa, XLM-RoBERTa and CamemBERT: absolute positions, plain attention."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from gliner_bento.engine.encoders.post_norm import PostNormLayer, has_known_activation
from gliner_bento.engine.layers.factory import LayerFactory
from gliner_bento.engine.layers.norm import Norm
from gliner_bento.engine.layers.packing import Block, Layout, softmax_attention

# Whether positions start after the padding token's id, as in RoBERTa.
_POSITIONS_AFTER_PADDING = {"BertModel": False, "RobertaModel": True, "XLMRobertaModel": True, "CamembertModel": True}


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, block: Block) -> torch.Tensor:
    """Softmax attention; see `packing.Attend`."""
    return softmax_attention(q, k, v, block.allowed)


class PackedBert:
    """A packed encoder (see `packed`)."""

    def __init__(self, model: Any, layers: LayerFactory) -> None:
        config, embeddings = model.config, model.embeddings
        self._words = embeddings.word_embeddings.weight.detach()
        # Every token has type 0, so the embedding of this type is added to all position embeddings.
        self._positions = (embeddings.position_embeddings.weight + embeddings.token_type_embeddings.weight[0]).detach()
        self._padding = config.pad_token_id if _POSITIONS_AFTER_PADDING[type(model).__name__] else None
        self._norm = Norm(embeddings.LayerNorm)
        self._layers = []
        for layer in model.encoder.layer:
            module = layer.attention.self
            qkv = layers.encoder_linear(module.query, module.key, module.value)
            self._layers.append(
                PostNormLayer(layer, layers, qkv, config.num_attention_heads, attend, config.hidden_act)
            )

    @staticmethod
    def supports(model: Any) -> bool:
        """Whether this class can run `model`."""
        config = model.config
        return (
            type(model).__name__ in _POSITIONS_AFTER_PADDING
            and getattr(config, "position_embedding_type", "absolute") == "absolute"
            and not config.is_decoder
            and has_known_activation(config)
        )

    def __call__(self, token_ids: torch.Tensor, layout: Layout) -> torch.Tensor:
        """(T,) -> (T, D)."""
        positions = layout.positions
        if self._padding is not None:
            positions = roberta_positions(token_ids, positions, self._padding)
        x = self._norm(F.embedding(token_ids, self._words) + self._positions[positions])
        for layer in self._layers:
            x = layer(x, layout)
        return x


def roberta_positions(token_ids: torch.Tensor, positions: torch.Tensor, padding: int) -> torch.Tensor:
    """RoBERTa's positions: a text's tokens are counted from `padding` + 1 on; padding tokens, which labels may
    contain, have position `padding`.

    token_ids: (T,). positions: (T,), from 0 in each text. padding: a token id.
    """
    is_counted = token_ids != padding
    counts = is_counted.cumsum(0)  # over all texts
    first = torch.arange(len(positions), device=positions.device) - positions  # the first token of each token's text
    before = (counts - is_counted.long())[first]
    return (counts - before) * is_counted + padding
