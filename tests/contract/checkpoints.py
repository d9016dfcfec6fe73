"""Tiny checkpoints of every model family, with random weights, built without a network.

    tiny_checkpoint(folder, "relex-span")   ->  folder, to be given to GLiNEREngine.load or GLiNER.from_pretrained

Weights are drawn until the model is lively: every threshold keeps some spans and relations and drops others.
"""

from __future__ import annotations

import string
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from gliner import GLiNER, GLiNERConfig
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import GPT2Config, PreTrainedTokenizerFast
from views import view

from gliner_bento.engine.checkpoint.device import DType
from gliner_bento.engine.checkpoint.resolve import Checkpoint, find_checkpoint
from gliner_bento.engine.engine import GLiNEREngine
from gliner_bento.engine.layers.int8 import multiplies_int8
from gliner_bento.engine.options import EngineOptions
from gliner_bento.errors import LimitExceeded
from gliner_bento.tasks.extraction import ExtractionItem as Item

HIDDEN = 32
POSITIONS = 128

TEXTS = (
    "Bill Gates founded Microsoft in Redmond.",
    "Ada Lovelace lives in Paris, and Marie Curie was born in Warsaw.",
    "Apple",
    "Steve Jobs founded Apple. Tokyo is a city, 東京 日本語.",
    "The company of Bill Gates is in Redmond, that of Steve Jobs is not: it works in the city of Paris and in Tokyo.",
)
LABELS = ("person", "company", "city", "date", "born in the place", "human")
RELATIONS = ("founder", "lives in", "works", "born in")

WORDS = [
    "the",
    "in",
    "of",
    "and",
    "a",
    "to",
    "is",
    "was",
    "for",
    "at",
    "by",
    "with",
    "bill",
    "gates",
    "founded",
    "microsoft",
    "redmond",
    "ada",
    "lovelace",
    "marie",
    "curie",
    "warsaw",
    "paris",
    "steve",
    "jobs",
    "apple",
    "tokyo",
    "person",
    "company",
    "city",
    "date",
    "organization",
    "location",
    "founder",
    "works",
    "lives",
    "born",
    "human",
    "place",
]

FAMILIES: dict[str, dict[str, Any]] = {
    "span": {},
    "token": {"span_mode": "token_level"},
    "token-spans": {"span_mode": "token_level", "represent_spans": True},
    "bi-span": {"labels_encoder": "here", "num_rnn_layers": 0},
    "bi-token": {"labels_encoder": "here", "num_rnn_layers": 0, "span_mode": "token_level"},
    "relex-span": {"relations_layer": "none", "num_rnn_layers": 0},
    "relex-span-dot": {"relations_layer": "dot"},
    "relex-span-gcn": {"relations_layer": "gcn"},
    "relex-span-triples": {"relations_layer": "none", "triples_layer": "DistMult"},
    "relex-token": {"relations_layer": "none", "span_mode": "token_level"},
    "relex-token-gat": {"relations_layer": "gat", "span_mode": "token_level"},
    "decoder-span": {"labels_decoder": "here", "decoder_mode": "span"},
    "decoder-token": {"labels_decoder": "here", "decoder_mode": "span", "span_mode": "token_level"},
}

_BERT = {
    "model_type": "bert",
    "hidden_size": HIDDEN,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": POSITIONS,
}
_DEBERTA = {
    "model_type": "deberta-v2",
    "hidden_size": HIDDEN,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": POSITIONS,
    "relative_attention": True,
    "position_buckets": 16,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "type_vocab_size": 0,
}
_MODERNBERT = {
    "model_type": "modernbert",
    "hidden_size": HIDDEN,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": POSITIONS,
    "global_attn_every_n_layers": 2,
    "local_attention": 8,
    "norm_bias": True,
    "pad_token_id": 0,
}
BACKBONES = {
    "bert": _BERT,
    "roberta": {**_BERT, "model_type": "roberta", "pad_token_id": 0, "max_position_embeddings": POSITIONS + 1},
    "deberta": _DEBERTA,
    "deberta-narrow": {**_DEBERTA, "embedding_size": 16, "share_att_key": False, "pos_att_type": ["c2p"]},
    "modernbert": _MODERNBERT,
    "electra": {**_BERT, "model_type": "electra", "embedding_size": 16},  # has no packed form
    # Padding changes its output.
    "convbert": {**_BERT, "model_type": "convbert", "embedding_size": 16, "head_ratio": 2},
}


needs_int8 = pytest.mark.skipif(not multiplies_int8(), reason="needs a CPU with VNNI or AMX")


def load_engine(
    folder: Path | str, dtype: DType = "float32", *, padded: bool | None = None, device: str = "cpu", **options: Any
) -> GLiNEREngine:
    """An engine over a checkpoint, with default settings but for `options`, and without a self-test.

    padded: batches are padded as on a GPU; None: on a GPU."""
    settings = view(EngineOptions, **{"self_test": False, **options})
    return GLiNEREngine.load(str(folder), device=device, dtype=dtype, options=settings, padded=padded)


def checkpoint_in(folder: Path, onnx_file: str | None = None, **options: Any) -> Checkpoint:
    """The checkpoint in a folder, with default settings but for `options`."""
    return find_checkpoint(str(folder), view(EngineOptions, **options), onnx_file)


def tiny_checkpoint(folder: Path, family: str, *, backbone: str = "bert", seed: int = 0, **options: Any) -> Path:
    """Write a checkpoint of `family` into `folder`; `options` are GLiNERConfig's."""
    tokens = folder / "tokenizer"
    tokenizer = wordpiece_tokenizer()
    tokenizer.save_pretrained(tokens)
    chosen = {**FAMILIES[family], **options}
    for backbone_of in ("labels_encoder", "labels_decoder"):
        if backbone_of in chosen:
            chosen[backbone_of] = str(tokens)
    if "labels_encoder" in chosen:
        chosen["labels_encoder_config"] = {**BACKBONES[backbone], "vocab_size": len(tokenizer)}
    if "labels_decoder" in chosen:
        chosen["labels_decoder_config"] = GPT2Config(
            vocab_size=len(tokenizer), n_embd=HIDDEN, n_layer=1, n_head=2, n_positions=POSITIONS
        ).to_dict()
    config = GLiNERConfig(
        **{
            "model_name": str(tokens),
            "encoder_config": {**BACKBONES[backbone], "vocab_size": len(tokenizer)},
            "hidden_size": HIDDEN,
            "max_width": 4,
            "max_len": 48,
            "dropout": 0.1,
            **chosen,
        }
    )
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        model = GLiNER.from_config(config, backbone_from_pretrained=False)
        for _ in range(300):
            draw_weights(model.model)
            if is_lively(model):
                break
        else:
            raise RuntimeError(f"{family} with {options} gives no lively model")
        model.save_pretrained(folder, safe_serialization=True)
    return folder


def is_lively(model: Any) -> bool:
    """Whether thresholds and labels change the results."""
    engine = GLiNEREngine(model, "drawn", view(EngineOptions))
    relations = RELATIONS[:2] if engine.info.supports_relations else ()
    items = [Item(text, named(LABELS), named(relations)) for text in TEXTS[:2]]
    answers = engine.decode(engine.forward(engine.collate([engine.prepare(item) for item in items]), 1))
    if any(isinstance(answer, LimitExceeded) for answer in answers):
        return False
    entities = [entity for answer in answers for entity in answer.entities]
    scores = sorted(entity.score for entity in entities)
    related = sum(len(answer.relations) for answer in answers)
    return (
        len(entities) >= 6
        and scores[1] < 0.8
        and scores[-2] > 0.9
        and len({entity.label for entity in entities}) > 1
        and (not relations or related > 3)
    )


def named(names: Iterable[str]) -> dict[str, str]:
    """Names that are their own descriptions."""
    return {name: name for name in names}


@torch.no_grad()
def draw_weights(model: torch.nn.Module) -> None:
    """Weights that preserve the variance of their input, so that scores spread over (0, 1)."""
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            parameter.normal_(0.0, 3.0 if "embed" in name or "shared" in name else 1.5 / parameter.shape[1] ** 0.5)
        elif name.endswith("bias"):
            parameter.normal_(0.0, 0.2)
    if hasattr(model, "scorer"):
        model.scorer.out_mlp[-1].weight.mul_(2)
        model.scorer.out_mlp[-1].bias.fill_(1.0)  # a tagged span needs three high scores


def wordpiece_tokenizer() -> PreTrainedTokenizerFast:
    """A lower-casing BERT tokenizer with a few words in its vocabulary; it splits others into letters."""
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = list(string.ascii_lowercase + string.digits + string.punctuation + "éüß東京日本語имя👍")
    pieces = [*specials, *letters, *(f"##{letter}" for letter in letters), *dict.fromkeys(WORDS)]
    backend = Tokenizer(
        models.WordPiece({piece: number for number, piece in enumerate(dict.fromkeys(pieces))}, unk_token="[UNK]")
    )
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", specials.index("[CLS]")), ("[SEP]", specials.index("[SEP]"))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=POSITIONS,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        eos_token="[SEP]",
    )
