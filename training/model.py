"""The GLiNER model that is trained, and a forward pass over it that is fast on CPUs.

The forward pass computes what `gliner` computes. It uses that the span layer's ReLU acts on a concatenation, so the
first half of the output projection can run once per word instead of once per span, and that the second half can be
folded into the label embeddings.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from gliner.config import UniEncoderSpanRelexConfig
from gliner.model import UniEncoderSpanRelexGLiNER
from torch import Tensor, nn
from torch.nn import functional as F

from training.batching import Batch

HIDDEN = 320
MAX_WIDTH = 12
DROPOUT = 0.1


def build_model(encoder: Path) -> Any:
    """A new model on the pre-trained encoder, its other layers drawn from torch's seed."""
    config = UniEncoderSpanRelexConfig(
        model_name=str(encoder),
        name="gliner-bento demo",
        hidden_size=HIDDEN,
        max_width=MAX_WIDTH,
        max_len=256,
        dropout=DROPOUT,
        span_mode="markerV0",
        num_rnn_layers=0,
        relations_layer="none",
        subtoken_pooling="first",
    )
    return _prepared(UniEncoderSpanRelexGLiNER.load_from_config(config))


def reload_model(folder: Path) -> Any:
    """The model of a checkpoint folder, in fp32 and ready to be trained on."""
    return _prepared(UniEncoderSpanRelexGLiNER.from_pretrained(str(folder), local_files_only=True).float())


def _prepared(model: Any) -> Any:
    # The fused attention kernel's backward pass is several times slower on CPUs than plain matrix products.
    model.model.token_rep_layer.bert_layer.model.set_attn_implementation("eager")
    replace_dropout(model.model)
    return model


class ByteDropout(nn.Module):
    """Dropout that draws eight mask elements per random number, since drawing dominates its cost on CPUs."""

    def __init__(self, p: float) -> None:
        """`p`: share of zeroed elements, rounded to 1/256."""
        super().__init__()
        self.p = p

    def forward(self, hidden: Tensor) -> Tensor:
        """Same shape, zeroed and rescaled while training."""
        if not self.training or not self.p:
            return hidden
        return drop(hidden, self.p)


def drop(hidden: Tensor, p: float) -> Tensor:
    """Zero a share `p` of the elements and rescale the others."""
    count = hidden.numel()
    numbers = torch.empty((count + 7) // 8, dtype=torch.int64, device=hidden.device).random_(-(2**63), None)
    limit = round(p * 256)
    keep = (numbers.view(torch.uint8)[:count] >= limit).view(hidden.shape)
    return hidden * (keep * (256 / (256 - limit))).to(hidden.dtype)


def replace_dropout(core: nn.Module) -> None:
    """Use `ByteDropout` throughout, and none inside the attention."""
    for parent in list(core.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Dropout):
                inside = type(parent).__name__.endswith("SelfAttention")
                setattr(parent, name, ByteDropout(0.0 if inside else child.p))


def _gather(states: Tensor, positions: Tensor) -> Tensor:
    """States (B, L, D) at positions (B, N), zero where the position is -1."""
    index = positions.clamp_min(0)[..., None].expand(-1, -1, states.shape[-1])
    return states.gather(1, index) * (positions >= 0)[..., None]


class FastForward(nn.Module):
    """Scores of a batch, computed on the layers of a gliner relation model, which are shared with it."""

    def __init__(self, core: nn.Module) -> None:
        """`core`: the `UniEncoderSpanRelexModel` inside a GLiNER."""
        super().__init__()
        self.core: Any = core

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Entity logits (B, K, W, C) and relation logits (P, R), unmasked where targets are -1."""
        core = self.core
        states = core.token_rep_layer(batch.input_ids, batch.attention_mask)
        words = _gather(states, batch.word_token)
        labels = core.prompt_rep_layer(_gather(states, batch.label_token))
        starts, ends, bias = self._word_parts(words)
        out = core.span_rep_layer.span_rep_layer.out_project[3]
        folded = labels @ out.weight  # (B, C, 4D): the last linear layer, seen from the labels
        shift = labels @ out.bias
        entities = self._span_scores(starts, ends, bias, folded, shift)
        if not len(batch.heads):
            return entities, entities.new_zeros((0, batch.pair_targets.shape[1]))
        text, first, last = batch.mentions.unbind(1)
        hidden = F.relu(starts[text, first] + ends[text, last] + bias)
        spans = out(self._drop(hidden))
        return entities, self._pair_scores(spans, _gather(states, batch.relation_token), batch)

    def _drop(self, hidden: Tensor) -> Tensor:
        return drop(hidden, DROPOUT) if self.training else hidden

    def _word_parts(self, words: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What each word adds to the hidden layer of the spans that start (B, W, 4D) or end at it, and the bias."""
        layer = self.core.span_rep_layer.span_rep_layer
        first = layer.out_project[0]
        left, right = first.weight.chunk(2, dim=1)
        starts = F.linear(F.relu(layer.project_start(words)), left)
        ends = F.linear(F.relu(layer.project_end(words)), right)
        return starts, ends, first.bias

    def _span_scores(self, starts: Tensor, ends: Tensor, bias: Tensor, folded: Tensor, shift: Tensor) -> Tensor:
        """Scores (B, K, W, C) of all spans; those that reach beyond the text are never used."""
        weights = folded.transpose(1, 2).contiguous()
        starts = starts + bias
        size = starts.shape[1]
        ends = F.pad(ends, (0, 0, 0, MAX_WIDTH - 1))
        rows = []
        for width in range(MAX_WIDTH):
            hidden = F.relu(starts + ends[:, width : width + size])
            rows.append(torch.bmm(hidden, weights.to(hidden.dtype)) + shift[:, None])
        return torch.stack(rows, dim=1)

    def _pair_scores(self, spans: Tensor, relations: Tensor, batch: Batch) -> Tensor:
        """Scores (P, R) of mention pairs; `spans` (M, D), `relations` (B, R, D)."""
        first, _, _, last = self.core.pair_rep_layer
        left, right = first.weight.chunk(2, dim=1)
        heads, tails = F.linear(spans, left), F.linear(spans, right)
        hidden = self._drop(F.relu(heads[batch.heads] + tails[batch.tails] + first.bias))
        pairs = last(hidden)
        # Against the relation labels of all texts in one product, then each pair keeps its own text's columns.
        texts, count, size = relations.shape
        scores = (pairs @ relations.reshape(texts * count, size).T.to(pairs.dtype)).view(-1, texts, count)
        own = batch.pair_text[:, None, None].expand(-1, 1, count)
        picked: Tensor = scores.gather(1, own)[:, 0]
        return picked
