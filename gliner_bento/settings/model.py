"""What is served, and how it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings

from gliner_bento.settings.field_types import AbsolutePath, CountOrAuto, Dtype, Model, Models
from gliner_bento.settings.marks import FlagOfCommands, OfAllModels, OfOperator


class ModelFields(BaseSettings):
    """What is served, and how it runs."""

    model: Annotated[Model, OfAllModels(), FlagOfCommands()] = Field(
        "models/demo",
        description="GLiNER checkpoint: a local folder (relative to the working directory or to service.py), an "
        "archive of one (.zip, .tar.gz; relative to the working directory), or a Hugging Face hub id.",
    )
    models: Annotated[Models, OfAllModels()] = Field(
        (),
        description="Several models in one server, instead of the setting model: a list of NAME=CHECKPOINT. The file "
        "may have an object instead; a flag --model NAME=CHECKPOINT may be given for each model. A request names a "
        "model in its field model; if it names none, it gets the first, unless model_settings makes another model the "
        "default. model_settings can give each model settings of its own.",
    )
    revision: Annotated[str | None, FlagOfCommands()] = Field(
        None, description="Branch, tag or commit of a model on the Hugging Face hub; unset: its main branch."
    )
    token: Annotated[SecretStr | None, FlagOfCommands()] = Field(
        None,
        description="Access token for private and gated models on the Hugging Face hub, never shown; unset: HF_TOKEN, "
        "or the token of `hf auth login`.",
    )
    cache_dir: Annotated[AbsolutePath | None, OfOperator(), FlagOfCommands()] = Field(
        None, description="Folder of downloads from the Hugging Face hub; unset: huggingface_hub's (HF_HOME)."
    )
    convert: bool = Field(
        True,
        description="Convert the weights of a pytorch_model.bin to safetensors once, so that later starts are faster; "
        "--no-convert: read the file at every start.",
    )
    conversion_cache_dir: Annotated[AbsolutePath, OfAllModels()] = Field(
        Path("~/.cache/gliner-bento/weights"),
        description="Folder of converted weights and of unpacked archives, safe to delete; $XDG_CACHE_HOME replaces "
        "~/.cache if it is set.",
    )
    device: Annotated[str, FlagOfCommands()] = Field(
        "auto",
        pattern=r"^(auto|cpu|cuda(:\d+)?)$",
        description="Device that the model runs on; auto: CUDA if available, else CPU.",
    )
    dtype: Annotated[Dtype, FlagOfCommands()] = Field(
        "auto",
        description="Data type of the model (short names: fp32, fp16, bf16); auto: bfloat16 if the hardware and "
        "the model support it, else float32.",
    )
    runtime: Annotated[Literal["torch", "onnxruntime"], FlagOfCommands()] = Field(
        "torch",
        description="Inference runtime; onnxruntime: run the ONNX graph that the checkpoint ships (entities only, "
        "no torch weights needed; requires the extra onnx).",
    )
    onnx_model_file: str = Field(
        "model.onnx",
        pattern=r"^\w[\w.-]*(/\w[\w.-]*)*\.onnx$",
        description="File name of the ONNX graph in the checkpoint folder, for runtime onnxruntime.",
    )
    quantization: Annotated[Literal["none", "int8"], FlagOfCommands()] = Field(
        "none",
        description="Quantization of the encoder; int8: linear layers in int8 with fixed scales, on CPUs with VNNI or "
        "AMX, faster at lower accuracy.",
    )
    calibration_file: AbsolutePath | None = Field(
        None,
        description="File with up to 64 texts like yours, one a line, from which quantization int8 takes its scales; "
        "unset: texts of the package.",
    )
    enable_sequence_packing: bool = Field(
        True,
        description="Pack the texts of a batch without padding if the backbone supports it (BERT, RoBERTa, "
        "DeBERTa, ModernBERT); false: padded batches through transformers' own code.",
    )
    enable_compilation: bool = Field(
        False,
        description="Fuse operations with torch.compile. On CPU: requires a C++ compiler, adds about 30 s to the "
        "start, and speeds up long texts in bfloat16 only.",
    )
    enforce_eager: bool = Field(False, description="Run every batch kernel by kernel, without CUDA graphs (CUDA only).")
    self_test: bool = Field(
        True,
        description="Compare the model's scores of three short texts with those of gliner's own code at start. If they "
        "differ, an error is logged and gliner's own forward pass serves; if that differs too, the start fails.",
    )
    batch_invariant: bool = Field(
        True,
        description="Give a text the same scores, bit for bit, whatever else is in its batch and however many threads "
        "compute it (CPU only). Verified at start; /v1/model reports the result. false: scores may differ by rounding.",
    )
    label_cache_size: Annotated[int, Field(ge=0)] = Field(
        4096, description="Maximum number of label embeddings that a bi-encoder caches (LRU); 0: no cache."
    )
    enable_flashdeberta: bool = Field(
        False,
        description="Run DeBERTa backbones with the package flashdeberta (CUDA only); startup fails if it is not "
        "available.",
    )
    max_model_len: CountOrAuto = Field(
        0,
        description="Maximum sequence length of the model, in words; 0: the checkpoint's (max_len). With a higher "
        "value, longer texts are processed in one pass, up to the encoder's maximum number of positions; such texts "
        "may be longer than those of the training.",
    )
    max_span_width: CountOrAuto = Field(
        0,
        description="Maximum width of an entity, in words; 0: the checkpoint's (max_width). Models that tag tokens "
        "have no such limit.",
    )
    window_words: CountOrAuto = Field(
        0,
        description="Default size of the windows of a long text, in words; 0: the model's maximum sequence "
        "length. A window is smaller if its tokens and the labels would not fit.",
    )
    window_overlap_words: CountOrAuto = Field(
        32,
        description="Default maximum overlap of consecutive windows, in words; limited to a quarter of the window.",
    )
    relation_window: Literal["auto", "whole", "sentences"] = Field(
        "auto",
        description="Default of how much text one pass reads for relations; whole: the window, as in gliner; "
        "sentences: a few sentences, in further passes; auto: what the checkpoint's gliner_config.json says, else "
        "whole.",
    )
    relation_window_sentences: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Default number of sentences in a relation window; unset: the checkpoint's, else 1."
    )
    relation_window_overlap_sentences: Annotated[int, Field(ge=0)] | None = Field(
        None,
        description="Default number of sentences that consecutive relation windows share; unset: the checkpoint's, "
        "else half of relation_window_sentences.",
    )
    max_labels_per_pass: CountOrAuto = Field(
        0,
        description="Maximum number of entity labels, and of relation labels, per pass; more labels take several "
        "passes; 0: the number that the checkpoint was trained with (max_types). A bi-encoder takes "
        "all labels in one pass.",
    )
