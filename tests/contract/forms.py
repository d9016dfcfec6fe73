"""The forms in which GLiNER checkpoints are published (`form_folders` makes small checkpoints of them).

A form says which public checkpoints it stands for and where that was seen. Lengths and widths are small, and so are the
backbones (see `backbones`); the names of keys and files, and the values that choose code, are the public ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from checkpoints import HIDDEN

# Keys of the training script, which the first generations wrote into the configuration.
_TRAINING: dict[str, Any] = {
    "lr_encoder": "1e-5",
    "lr_others": "5e-5",
    "num_steps": 30000,
    "warmup_ratio": 0.1,
    "size_sup": -1,
    "shuffle_types": True,
    "random_drop": True,
    "max_neg_type_ratio": 1,
    "max_types": 25,
    "fine_tune": True,
    "subtoken_pooling": "first",
    "dropout": 0.4,
}
# Keys of gliner 0.2 up to the end of 2025.
_EARLY: dict[str, Any] = {
    **_TRAINING,
    "model_type": "gliner",
    "name": "span level gliner",
    "ent_token": "<<ENT>>",
    "sep_token": "<<SEP>>",
    "has_rnn": True,
    "embed_ent_token": True,
    "fuse_layers": False,
    "label_smoothing": 0.0001,
    "labels_encoder": None,
    "labels_encoder_config": None,
    "loss_alpha": 0.8,
    "loss_gamma": 2,
    "loss_reduction": "sum",
    "num_post_fusion_layers": 3,
    "post_fusion_schema": "",
    "span_mode": "markerV0",
    "transformers_version": "4.43.2",
    "vocab_size": -1,
    "class_token_index": -1,
    "words_splitter_type": "whitespace",
}
# Some of the keys that transformers 4 wrote into every encoder_config.
TRANSFORMERS_4: dict[str, Any] = {
    "_attn_implementation_autoset": False,
    "add_cross_attention": False,
    "architectures": None,
    "id2label": {"0": "LABEL_0", "1": "LABEL_1"},
    "is_decoder": False,
    "label2id": {"LABEL_0": 0, "LABEL_1": 1},
    "max_length": 20,
    "pruned_heads": {},
    "return_dict": True,
    "torch_dtype": None,
}

# Keys of gliner 0.2 since then.
_LATE: dict[str, Any] = {
    **{key: value for key, value in _EARLY.items() if key not in _TRAINING},
    **{"fine_tune": True, "subtoken_pooling": "first", "dropout": 0.3, "max_types": 100, "max_neg_type_ratio": 1},
    **{"num_rnn_layers": 1, "represent_spans": False, "post_fusion_schema": None, "neg_spans_ratio": 1.0},
    **{"token_loss_coef": 1.0, "span_loss_coef": 1.0, "_attn_implementation": None},
}
_RELEX: dict[str, Any] = {
    "relations_layer": "none",
    "triples_layer": None,
    "embed_rel_token": True,
    "rel_token_index": -1,
    "rel_token": "<<REL>>",
    "adjacency_loss_coef": 1.0,
    "relation_loss_coef": 1.0,
}

Files = Literal["none", "tokenizer.json", "spm.model"]
Encoder = Literal["packed", "padded"]


@dataclass(frozen=True)
class Form:
    """How a checkpoint is published.

    stands_for: public checkpoints. source: where the form was seen.
    config: gliner_config.json, but for lengths, widths and what follows from the other fields.
    tokenizer: the tokenizer's files in the folder; `none`: it comes from the backbone's repository.
    special_tokens: those in the folder's tokenizer. embedded: the backbones' configurations are in gliner_config.json.
    indices: class_token_index and vocab_size are written. encoder: how ours runs.
    """

    stands_for: str
    source: str
    config: dict[str, Any] = field(hash=False)
    tokenizer: Files = "none"
    special_tokens: tuple[str, ...] = ("[FLERT]", "<<ENT>>", "<<SEP>>")
    embedded: bool = False
    indices: bool = False
    encoder: Encoder = "packed"


_CODE = "gliner's code"
_HF = "https://huggingface.co"
_KNOWLEDGATOR = "[Knowledgator's tables](https://github.com/Knowledgator/Documentation)"
_GLINER = "https://github.com/urchade/GLiNER"
_SMALL = "microsoft/deberta-v3-small"
_LLAMA = "princeton-nlp/Sheared-LLaMA-1.3B"
_BACKBONE_SIZE = {"hidden_size": HIDDEN}
_BGE, _MINILM, _E5 = (
    "BAAI/bge-small-en-v1.5",
    "sentence-transformers/all-MiniLM-L6-v2",
    "intfloat/multilingual-e5-small",
)


def _other_backbone(model_name: str, encoder: Encoder = "packed", **config: Any) -> Form:
    return Form(
        "a model of this backbone",
        _CODE,
        {**_EARLY, **_BACKBONE_SIZE, "model_name": model_name, **config},
        tokenizer="tokenizer.json",
        embedded=True,
        indices=True,
        encoder=encoder,
    )


FORMS: dict[str, Form] = {
    "v0": Form(
        "urchade/gliner_base, urchade/gliner_multi",
        "[copy of gliner_base](https://github.com/ner-ml-models/gliner_base)",
        {
            **_TRAINING,
            **_BACKBONE_SIZE,
            "model_name": "microsoft/deberta-v3-base",
            "name": "abl",
            "span_mode": "marker",
        },
    ),
    "nuner-zero": Form(
        "numind/NuNER_Zero",
        "[copy of NuNER_Zero](https://github.com/ner-ml-models/nuner_zero)",
        {
            **_TRAINING,
            **_BACKBONE_SIZE,
            "model_name": "microsoft/deberta-v3-large",
            "span_mode": "marker",
            "max_width": 1,
            "gradient_accumulation_steps": 2,
            "name": "large",
        },
    ),
    "v1-v2-v2.1": Form(
        "urchade/gliner_{small,medium,large}-v1, -v2, -v2.1",
        f"[v1]({_HF}/urchade/gliner_large-v1/blob/2defba0bf968e009e1bcd3ade665f4d75c6c9974/gliner_config.json), "
        f"[v2]({_HF}/urchade/gliner_small-v2/blame/c53207e299e3e97152859afa5741ddec09f09208/gliner_config.json)",
        {**_TRAINING, "model_name": _SMALL, "name": "correct", "span_mode": "markerV0"},
    ),
    "multilingual": Form(
        "urchade/gliner_multi-v2.1, urchade/gliner_multi_pii-v1",
        f"[versions]({_HF}/urchade/gliner_multi/commit/b5720abb5b8c575e626e54a7c1001761db8b08db), "
        f"[mDeBERTa]({_HF}/vgimenezproguide/modelo_prueba/commit/14cacda8b00a3b2abc8e2932d2fee5263e079b8b)",
        {**_TRAINING, "model_name": "microsoft/mdeberta-v3-base", "name": "correct", "span_mode": "markerV0"},
    ),
    "token": Form(
        "LuuNgoc2k2/ViNER-DeBerta-v3-small",
        f"[config]({_HF}/LuuNgoc2k2/ViNER-DeBerta-v3-small/blob/main/gliner_config.json)",
        {
            **_TRAINING,
            **_BACKBONE_SIZE,
            "model_name": _SMALL,
            "name": "token level gliner",
            "span_mode": "token_level",
            "max_width": 100,
            "max_types": 11928,
            "loss_alpha": -1,
            "loss_gamma": 0,
            "loss_reduction": "sum",
            "log_dir": "viner_general_v2",
        },
    ),
    "backbone-written-in": Form(
        "Jashjeet/address-parser",
        "[config](https://github.com/Jashjeet/address-parser)",
        {**_TRAINING, "model_name": "microsoft/deberta-v3-large", "name": "correct", "span_mode": "markerV0"},
        embedded=True,
    ),
    "v2.5": Form(
        "gliner-community/gliner_{small,medium,large}-v2.5, ljvmiranda921/tl_gliner_small",
        f"[config]({_HF}/ljvmiranda921/tl_gliner_small/blame/7fabbab2ec85907f03e8a85141578e9104929a60/gliner_config.json)",
        {**_EARLY, **_BACKBONE_SIZE, "model_name": _SMALL, "encoder_config": None, "max_types": 30},
        tokenizer="tokenizer.json",
        special_tokens=("<<ENT>>", "<<SEP>>"),
        indices=True,
    ),
    "v1-saved-again": Form(
        "onnx-community/gliner_large-v1",
        f"[config]({_HF}/onnx-community/gliner_large-v1/blob/078192d7fcd01f86eec0509878accc911139fded/gliner_config.json)",
        {**_EARLY, "model_name": "microsoft/deberta-v3-large", "encoder_config": None, "name": "correct"},
        tokenizer="tokenizer.json",
        indices=True,
    ),
    "post-train": Form(
        "Ihor/gliner-large-v2.1-post-train",
        f"[config]({_HF}/Ihor/gliner-large-v2.1-post-train/blob/main/gliner_config.json)",
        {**_EARLY, "model_name": "microsoft/deberta-v3-large", "transformers_version": "4.46.3"},
        tokenizer="tokenizer.json",
        embedded=True,
        indices=True,
    ),
    "indices-not-written": Form(
        "bordias/gliner_base_legallens_ner",
        f"[config]({_HF}/bordias/gliner_base_legallens_ner/blob/main/gliner_config.json)",
        {**_EARLY, "model_name": "microsoft/deberta-v3-base", "dropout": 0.5},
        tokenizer="tokenizer.json",
        embedded=True,
    ),
    "sentencepiece-only": Form(
        "a tokenizer as spm.model and added_tokens.json, without tokenizer.json",
        _CODE,
        {**_EARLY, **_BACKBONE_SIZE, "model_name": _SMALL, "encoder_config": None},
        tokenizer="spm.model",
        indices=True,
    ),
    "multitask": Form(
        "knowledgator/gliner-multitask-large-v0.5, knowledgator/gliner-multitask-v1.0",
        f"[paper](https://arxiv.org/abs/2406.12925), [training]({_GLINER}/blob/main/configs/config_token.yaml)",
        {
            **_EARLY,
            **_BACKBONE_SIZE,
            "model_name": "microsoft/deberta-v3-large",
            "name": "token level gliner",
            "span_mode": "token_level",
            "max_width": 100,
            "max_types": 30,
        },
        tokenizer="tokenizer.json",
        embedded=True,
        indices=True,
    ),
    "bi-v1-minilm": Form(
        "knowledgator/gliner-bi-small-v1.0",
        _KNOWLEDGATOR,
        {**_EARLY, "model_name": _SMALL, "labels_encoder": _MINILM},
        tokenizer="tokenizer.json",
        embedded=True,
    ),
    "bi-v1-bge": Form(
        "knowledgator/gliner-bi-base-v1.0, gretelai/gretel-gliner-bi-base-v1.0",
        f"{_KNOWLEDGATOR}, [config]({_HF}/gretelai/gretel-gliner-bi-base-v1.0/raw/main/gliner_config.json)",
        {
            **_EARLY,
            **_BACKBONE_SIZE,
            "model_name": "microsoft/deberta-v3-base",
            "labels_encoder": _BGE,
            "max_types": 100,
        },
        tokenizer="tokenizer.json",
        embedded=True,
    ),
    "bi-modernbert": Form(
        "knowledgator/modern-gliner-bi-base-v1.0, knowledgator/modern-gliner-bi-large-v1.0",
        f"{_KNOWLEDGATOR}, [config]({_HF}/knowledgator/modern-gliner-bi-large-v1.0/blame/"
        "a241da8890916c35c13b5316d4b7959542be8756/gliner_config.json)",
        {**_EARLY, "model_name": "answerdotai/ModernBERT-base", "labels_encoder": _BGE, "dropout": 0.35},
        tokenizer="tokenizer.json",
        embedded=True,
    ),
    "bi-v2": Form(
        "knowledgator/gliner-bi-{edge,small,base,large}-v2.0",
        "[table](https://docs.knowledgator.com/docs/frameworks/glinker/pretrained-models)",
        {
            **_LATE,
            "model_type": "gliner_bi_encoder_span",
            "model_name": "jhu-clsp/ettin-encoder-32m",
            "labels_encoder": _MINILM,
            "span_mode": "markerV0",
        },
        tokenizer="tokenizer.json",
        embedded=True,
    ),
    "bi-token": Form(
        "a bi-encoder at token level, with a multilingual label encoder",
        _CODE,
        {**_LATE, "model_name": _SMALL, "labels_encoder": _E5, "span_mode": "token_level"},
        tokenizer="tokenizer.json",
        embedded=True,
    ),
    "poly": Form(
        "knowledgator/gliner-poly-small-v1.0",
        _KNOWLEDGATOR,
        {**_EARLY, "model_name": _SMALL, "labels_encoder": _BGE, "post_fusion_schema": "l2l-l2t-t2t"},
        tokenizer="tokenizer.json",
        embedded=True,
    ),
    "bi-llama": Form(
        "knowledgator/gliner-bi-llama-v1.0",
        _KNOWLEDGATOR,
        {**_EARLY, **_BACKBONE_SIZE, "model_name": _LLAMA, "labels_encoder": _BGE},
        tokenizer="tokenizer.json",
        embedded=True,
        encoder="padded",
    ),
    "llama": Form(
        "knowledgator/gliner-llama-1.3B-v1.0",
        f"[config]({_HF}/knowledgator/gliner-llama-1.3B-v1.0/commit/0e493f53b8c1f2da48ecbd92392914a70327c22d)",
        {**_EARLY, **_BACKBONE_SIZE, "model_name": _LLAMA},
        tokenizer="tokenizer.json",
        special_tokens=("<<ENT>>", "<<SEP>>"),
        embedded=True,
        indices=True,
        encoder="padded",
    ),
    "mt5": Form(
        "an mT5 encoder (knowledgator/gliner-x-*: their configurations were not seen)",
        _CODE,
        {**_EARLY, "model_name": "google/mt5-small", "span_mode": "markerV0"},
        tokenizer="tokenizer.json",
        embedded=True,
        indices=True,
        encoder="padded",
    ),
    "mt5-of-the-hub": Form(
        "an mT5 encoder, without tokenizer and encoder_config",
        _CODE,
        {**_EARLY, "model_name": "google/mt5-small", "encoder_config": None},
        encoder="padded",
    ),
    "t5-token": _other_backbone("google/flan-t5-small", "padded", span_mode="token_level"),
    "modernbert": _other_backbone("answerdotai/ModernBERT-base"),
    "bert": _other_backbone("bert-base-uncased"),
    "roberta": _other_backbone("roberta-base"),
    "xlm-roberta": _other_backbone("xlm-roberta-base"),
    "electra": _other_backbone("google/electra-small-discriminator", "padded"),
    "albert": _other_backbone("albert-base-v2", "padded"),
    "distilbert": _other_backbone("distilbert-base-uncased", "padded"),
    "mpnet": _other_backbone("microsoft/mpnet-base", "padded"),
    "deberta-v1": _other_backbone("microsoft/deberta-base", "padded"),
    "relex-span": Form(
        "knowledgator/gliner-relex-* at span level",
        f"[training]({_GLINER}/blob/main/configs/config_relex.yaml)",
        {**_LATE, "model_type": "gliner_uni_encoder_span_relex", **_RELEX, "model_name": "microsoft/deberta-v3-large"},
        tokenizer="tokenizer.json",
        special_tokens=("<<ENT>>", "<<SEP>>", "<<REL>>"),
        embedded=True,
        indices=True,
    ),
    "relex-token": Form(
        "knowledgator/gliner-relex-* at token level",
        f"[gliner]({_GLINER}/pull/321)",
        {
            **_LATE,
            "model_type": "gliner_uni_encoder_token_relex",
            **_RELEX,
            "model_name": "microsoft/mdeberta-v3-base",
            "span_mode": "token_level",
            "represent_spans": True,
        },
        tokenizer="tokenizer.json",
        special_tokens=("<<ENT>>", "<<SEP>>", "<<REL>>"),
        embedded=True,
        indices=True,
    ),
    "decoder": Form(
        "Knowledgator's GLiNER-decoder models; their generated labels are not served",
        f"[training]({_GLINER}/blob/main/configs/config_decoder.yaml)",
        {
            **_LATE,
            "model_type": "gliner_uni_encoder_span_decoder",
            "model_name": _SMALL,
            "labels_decoder": "HuggingFaceTB/SmolLM2-135M-Instruct",
            "decoder_mode": "span",
            "full_decoder_context": True,
            "blank_entity_prob": 0.1,
            "decoder_loss_coef": 0.5,
        },
        tokenizer="tokenizer.json",
        embedded=True,
        indices=True,
    ),
}
