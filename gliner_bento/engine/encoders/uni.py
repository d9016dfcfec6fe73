"""The uni-encoder: labels and relations are in the prompt, before the text, in one sequence."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from gliner_bento.engine.encoders.inputs import Inputs
from gliner_bento.engine.encoders.output import Encoder, EncoderOutput
from gliner_bento.engine.encoders.text_encoder import WordPooling, text_encoder
from gliner_bento.engine.layers.factory import LayerFactory
from gliner_bento.engine.layers.lstm import Lstm
from gliner_bento.engine.options import EngineOptions


class BareBackbone(nn.Module):
    """Wraps a transformers backbone. Stands for gliner's `Encoder`, and for the `Transformer` in its `bert_layer`."""

    config = SimpleNamespace(fuse_layers=False)

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.model = backbone

    @property
    def bert_layer(self) -> BareBackbone:
        """This module."""
        return self

    def forward(self, token_ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """(texts, longest) -> (texts, longest, D)."""
        states: torch.Tensor = self.model(input_ids=token_ids, attention_mask=mask).last_hidden_state
        return states


def schema_encoder(model: Any, layers: LayerFactory, options: EngineOptions) -> UniEncoder:
    """The encoder for gliner2's model. In its output, `relations` has the embeddings of all of the prompt's markers
    except those of labels."""
    config = SimpleNamespace(subtoken_pooling=model.processor.token_pooling, num_rnn_layers=0)
    return UniEncoder(SimpleNamespace(config=config, token_rep_layer=BareBackbone(model.encoder)), layers, options)


class UniEncoder(Encoder):
    """Encodes texts, with labels and relations in their prompts."""

    encoded_labels = 0

    def __init__(self, model: Any, layers: LayerFactory, options: EngineOptions) -> None:
        config, pack = model.config, options.enable_sequence_packing
        self._encode, self.name, self.packs = text_encoder(model.token_rep_layer, layers, pack=pack)
        self._pool = WordPooling(config.subtoken_pooling)
        self._lstm = Lstm(model.rnn, layers.threads, padded=layers.padded) if config.num_rnn_layers > 0 else None

    def __call__(self, inputs: Inputs) -> EncoderOutput:
        rows = inputs.rows
        tokens = self._encode(inputs.token_ids, rows.tokens, inputs.layout)
        words = self._pool(tokens, inputs)
        if self._lstm is not None:
            words = self._lstm(words, rows.words)
        labels, relations = tokens[inputs.label_positions], tokens[inputs.relation_positions]
        return EncoderOutput(words, labels, relations, rows, inputs.thresholds)
