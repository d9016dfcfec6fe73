"""The uni-encoder: labels and relations are in the prompt, before the text, in one sequence."""

from __future__ import annotations

from typing import Any

from gliner_bento.engine.encoders.inputs import Inputs, PromptTokens
from gliner_bento.engine.encoders.output import EncoderOutput
from gliner_bento.engine.encoders.text_encoder import WordPooling, text_encoder
from gliner_bento.engine.layers.factory import LayerFactory
from gliner_bento.engine.layers.lstm import Lstm
from gliner_bento.engine.layers.projection import Projection
from gliner_bento.engine.options import EngineOptions


class UniEncoder:
    """An `Encoder`. relations: the prompt holds relations too. label_projection: applied to labels before scoring."""

    encoded_labels = 0

    def __init__(
        self,
        model: Any,
        layers: LayerFactory,
        options: EngineOptions,
        relations: bool,
        label_projection: Projection | None,
    ) -> None:
        config, pack = model.config, options.enable_sequence_packing
        self._encode, self.name, self.packs = text_encoder(model.token_rep_layer, layers, pack=pack)
        self._pool = WordPooling(config.subtoken_pooling)
        self._lstm = Lstm(model.rnn, layers.threads, padded=layers.padded) if config.num_rnn_layers > 0 else None
        self._label_projection = label_projection
        self.prompt = PromptTokens(
            config.class_token_index,
            config.rel_token_index if relations else None,
            label_shift=0 if config.embed_ent_token else 1,
            relation_shift=1 if relations and not config.embed_rel_token else 0,
        )

    def __call__(self, inputs: Inputs) -> EncoderOutput:
        """See `Encoder`."""
        rows = inputs.rows
        tokens = self._encode(inputs.token_ids, rows.tokens, inputs.layout)
        words = self._pool(tokens, inputs)
        if self._lstm is not None:
            words = self._lstm(words, rows.words)
        labels = tokens[inputs.label_positions]
        if self._label_projection is not None:
            labels = self._label_projection(labels, rows.labels.slot_rows)
        return EncoderOutput(words, labels, tokens[inputs.relation_positions], rows, inputs.thresholds)
