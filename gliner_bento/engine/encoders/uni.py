"""The uni-encoder: labels and relations are in the prompt, before the text, in one sequence."""

from __future__ import annotations

from typing import Any

from gliner_bento.engine.encoders.inputs import Inputs
from gliner_bento.engine.encoders.output import EncoderOutput
from gliner_bento.engine.encoders.text_encoder import WordPooling, text_encoder
from gliner_bento.engine.layers.factory import LayerFactory
from gliner_bento.engine.layers.lstm import Lstm
from gliner_bento.engine.options import EngineOptions


class UniEncoder:
    """An `Encoder`."""

    encoded_labels = 0

    def __init__(self, model: Any, layers: LayerFactory, options: EngineOptions) -> None:
        config, pack = model.config, options.enable_sequence_packing
        self._encode, self.name, self.packs = text_encoder(model.token_rep_layer, layers, pack=pack)
        self._pool = WordPooling(config.subtoken_pooling)
        self._lstm = Lstm(model.rnn, layers.threads, padded=layers.padded) if config.num_rnn_layers > 0 else None

    def __call__(self, inputs: Inputs) -> EncoderOutput:
        """See `Encoder`."""
        rows = inputs.rows
        tokens = self._encode(inputs.token_ids, rows.tokens, inputs.layout)
        words = self._pool(tokens, inputs)
        if self._lstm is not None:
            words = self._lstm(words, rows.words)
        labels, relations = tokens[inputs.label_positions], tokens[inputs.relation_positions]
        return EncoderOutput(words, labels, relations, rows, inputs.thresholds)
