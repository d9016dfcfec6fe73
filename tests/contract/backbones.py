"""Backbones as they are on the Hub, with tiny configurations and tokenizers, in a Hugging Face cache folder.

    place("microsoft/deberta-v3-small")   ->  config.json and spm.model under models--microsoft--deberta-v3-small

Configurations and tokenizer files are of the same kind as in the public repository: a SentencePiece model where it has
only that. There are no weights: gliner takes those from its own checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sentencepiece
from checkpoints import BACKBONES, HIDDEN, LABELS, POSITIONS, RELATIONS, TEXTS, WORDS, wordpiece_tokenizer
from huggingface_hub import constants
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

_REVISION = "0" * 40
# Public encoders have more embeddings than their tokenizer has tokens: microsoft/deberta-v3-small 128,100 for 128,001.
_SPARE_EMBEDDINGS = 24
_CORPUS = [*TEXTS, *LABELS, *RELATIONS, *WORDS] * 2
_T5 = {
    "d_model": HIDDEN,
    "d_kv": 16,
    "d_ff": 64,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 2,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 32,
    "feed_forward_proj": "gated-gelu",
    "is_encoder_decoder": True,
    "pad_token_id": 0,
    "eos_token_id": 1,
}
_LLAMA = {
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": POSITIONS,
}
_DEBERTA_V3 = {**BACKBONES["deberta"], "pos_att_type": "p2c|c2p", "max_relative_positions": -1, "pad_token_id": 0}


def place(repository: str) -> Path:
    """The repository's files in the cache, as a download of its main branch leaves them. Returns the snapshot."""
    folder = Path(constants.HF_HUB_CACHE) / f"models--{repository.replace('/', '--')}"
    snapshot = folder / "snapshots" / _REVISION
    if snapshot.is_dir():
        return snapshot
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(_REVISION)
    config, write_tokenizer = REPOSITORIES[repository]
    size = write_tokenizer(snapshot) + _SPARE_EMBEDDINGS
    (snapshot / "config.json").write_text(json.dumps({**config, "vocab_size": size}))
    return snapshot


def config_of(repository: str) -> dict[str, Any]:
    """Its configuration."""
    config: dict[str, Any] = json.loads((place(repository) / "config.json").read_text())
    return config


def _tokenizer_config(folder: Path, **config: Any) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def _sentencepiece(path: Path, **options: Any) -> int:
    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(_CORPUS),
            model_writer=file,
            vocab_size=400,
            hard_vocab_limit=False,
            minloglevel=2,
            **options,
        )
    return len(sentencepiece.SentencePieceProcessor(model_file=str(path)))


def _deberta_v3(folder: Path) -> int:
    """spm.model without tokenizer.json."""
    _tokenizer_config(folder, do_lower_case=False, vocab_type="spm")
    ids = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3}
    pieces = {"pad_piece": "[PAD]", "bos_piece": "[CLS]", "eos_piece": "[SEP]", "unk_piece": "[UNK]"}
    return _sentencepiece(folder / "spm.model", **ids, **pieces, user_defined_symbols=["[MASK]"])


def _t5(folder: Path) -> int:
    """spiece.model without tokenizer.json."""
    _tokenizer_config(folder, tokenizer_class="T5Tokenizer", extra_ids=0, model_max_length=512)
    return _sentencepiece(folder / "spiece.model", pad_id=0, eos_id=1, unk_id=2, bos_id=-1)


def _albert(folder: Path) -> int:
    _tokenizer_config(folder, tokenizer_class="AlbertTokenizer", do_lower_case=True)
    symbols = ["[CLS]", "[SEP]", "[MASK]"]
    return _sentencepiece(
        folder / "spiece.model", pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, user_defined_symbols=symbols
    )


def _xlm_roberta(folder: Path) -> int:
    _tokenizer_config(folder, tokenizer_class="XLMRobertaTokenizer", model_max_length=POSITIONS)
    return _sentencepiece(folder / "sentencepiece.bpe.model", unk_id=0, bos_id=1, eos_id=2, pad_id=-1) + 2


def _llama(folder: Path) -> int:
    _tokenizer_config(folder, tokenizer_class="LlamaTokenizer", bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    return _sentencepiece(folder / "tokenizer.model", model_type="bpe", byte_fallback=True, pad_id=-1)


def _bert(folder: Path) -> int:
    """vocab.txt without tokenizer.json."""
    _tokenizer_config(folder, tokenizer_class="BertTokenizer", do_lower_case=True, model_max_length=512)
    vocabulary = wordpiece_tokenizer().get_vocab()
    (folder / "vocab.txt").write_text("\n".join(sorted(vocabulary, key=vocabulary.__getitem__)) + "\n")
    return len(vocabulary)


def _byte_level(specials: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return tokenizer


def _modernbert(folder: Path) -> int:
    """Byte-level BPE in tokenizer.json."""
    tokenizer = _byte_level(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    _tokenizer_config(folder, tokenizer_class="PreTrainedTokenizerFast", model_max_length=POSITIONS, **names)
    return tokenizer.get_vocab_size()


def _roberta(folder: Path) -> int:
    """Byte-level BPE in vocab.json and merges.txt."""
    _tokenizer_config(folder, tokenizer_class="RobertaTokenizer", model_max_length=POSITIONS)
    tokenizer = _byte_level(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    tokenizer.model.save(str(folder))
    return tokenizer.get_vocab_size()


def _byt5(folder: Path) -> int:
    """No vocabulary: a token per byte."""
    _tokenizer_config(folder, tokenizer_class="ByT5Tokenizer")
    return 384


def _gpt2(folder: Path) -> int:
    _tokenizer_config(folder, tokenizer_class="GPT2Tokenizer", bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    tokenizer = _byte_level(["<s>", "</s>", "<unk>"])
    tokenizer.model.save(str(folder))
    return tokenizer.get_vocab_size()


_BERT = {**BACKBONES["bert"], "type_vocab_size": 2}
_ROBERTA = {**BACKBONES["roberta"], "pad_token_id": 1, "max_position_embeddings": POSITIONS + 2, "type_vocab_size": 1}
_DISTILBERT = {
    "model_type": "distilbert",
    "dim": HIDDEN,
    "hidden_dim": 64,
    "n_layers": 2,
    "n_heads": 2,
    "max_position_embeddings": POSITIONS,
}
_DEBERTA_V1 = {
    **BACKBONES["bert"],
    "model_type": "deberta",
    "relative_attention": True,
    "max_relative_positions": -1,
    "position_biased_input": False,
    "pos_att_type": "c2p|p2c",
    "type_vocab_size": 0,
}
_MODERNBERT = {
    **BACKBONES["modernbert"],
    "global_rope_theta": 160000.0,
    "local_rope_theta": 10000.0,
    "position_embedding_type": "absolute",
    "reference_compile": True,
}
REPOSITORIES: dict[str, tuple[dict[str, Any], Callable[[Path], int]]] = {
    "microsoft/deberta-v3-small": (_DEBERTA_V3, _deberta_v3),
    "microsoft/deberta-v3-base": (_DEBERTA_V3, _deberta_v3),
    "microsoft/deberta-v3-large": (_DEBERTA_V3, _deberta_v3),
    "microsoft/mdeberta-v3-base": (_DEBERTA_V3, _deberta_v3),
    "microsoft/deberta-base": (_DEBERTA_V1, _roberta),
    "answerdotai/ModernBERT-base": (_MODERNBERT, _modernbert),
    "jhu-clsp/ettin-encoder-32m": ({**_MODERNBERT, "position_embedding_type": "sans_pos"}, _modernbert),
    "BAAI/bge-small-en-v1.5": (_BERT, _bert),
    "sentence-transformers/all-MiniLM-L6-v2": (_BERT, _bert),
    "intfloat/multilingual-e5-small": (_BERT, _xlm_roberta),
    "google/mt5-small": ({**_T5, "model_type": "mt5"}, _t5),
    "google/flan-t5-small": ({**_T5, "model_type": "t5"}, _t5),
    "google/byt5-small": ({**_T5, "model_type": "t5"}, _byt5),
    "princeton-nlp/Sheared-LLaMA-1.3B": (_LLAMA, _llama),
    "HuggingFaceTB/SmolLM2-135M-Instruct": (_LLAMA, _gpt2),
    "bert-base-uncased": (_BERT, _bert),
    "roberta-base": (_ROBERTA, _roberta),
    "xlm-roberta-base": ({**_ROBERTA, "model_type": "xlm-roberta"}, _xlm_roberta),
    "google/electra-small-discriminator": ({**_BERT, "model_type": "electra", "embedding_size": 16}, _bert),
    "albert-base-v2": ({**_BERT, "model_type": "albert", "embedding_size": 16}, _albert),
    "distilbert-base-uncased": (_DISTILBERT, _bert),
    "microsoft/mpnet-base": ({**_ROBERTA, "model_type": "mpnet"}, _bert),
}
