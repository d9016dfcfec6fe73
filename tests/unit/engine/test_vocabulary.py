"""A tokenizer whose vocabulary is missing is refused; a small vocabulary is not."""

from __future__ import annotations

import pytest
from torch import nn
from transformers import BertConfig, BertModel

from gliner_bento.engine.checkpoint.find import ModelError
from gliner_bento.engine.checkpoint.limits import check_vocabulary

VOCABULARY = 40


@pytest.fixture(scope="module")
def encoder():
    """With more positions than tokens, inside of a module as gliner's are."""
    config = BertConfig(vocab_size=VOCABULARY, hidden_size=8, num_hidden_layers=1, num_attention_heads=1,
                        intermediate_size=8, max_position_embeddings=512)  # fmt: skip
    return nn.ModuleDict({"model": BertModel(config)})


def test_a_vocabulary_smaller_than_the_table_of_positions_is_complete(encoder):
    check_vocabulary(encoder, range(VOCABULARY))


def test_special_tokens_alone_are_no_vocabulary(encoder):
    with pytest.raises(ModelError, match="5 tokens, its encoder 40: the vocabulary is missing"):
        check_vocabulary(encoder, range(5))
