"""The word splitters of gliner: which packages and data each needs. Checked before a model is loaded."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from gliner.data_processing.tokenizer import StanzaWordsSplitter, WordsSplitter
from huggingface_hub import constants

from gliner_bento.engine.checkpoint.find import ModelError, read_json
from gliner_bento.errors import install_hint
from gliner_bento.storage.other_models import CONFIG

# `words_splitter_type` -> modules that gliner imports for it; an extra of the same name installs their packages.
WORD_SPLITTERS: dict[str, tuple[str, ...]] = {
    "whitespace": (),
    "camel": ("camel_tools",),
    "hanlp": ("hanlp",),
    "hindi": ("indicnlp",),
    "janome": ("janome",),
    "jieba": ("jieba", "jieba3"),  # gliner looks for the first, and imports the second
    "mecab": ("mecab",),
    "spacy": ("spacy",),
    "stanza": ("stanza", "langdetect"),
    "universal": ("langdetect", "camel_tools", "indicnlp", "janome", "jieba", "jieba3", "mecab", "spacy"),
}
_PACKAGES = {"camel_tools": "camel-tools", "indicnlp": "indic-nlp-library", "mecab": "python-mecab-ko"}

_STANZA_DATA = (
    "it needs stanza's model for 'en', in STANZA_RESOURCES_DIR or ~/stanza_resources: "
    "python -c \"import stanza; stanza.download('en', processors='tokenize')\""
)
_HANLP_DATA = (
    "it needs HanLP's model FINE_ELECTRA_SMALL_ZH, in HANLP_HOME or ~/.hanlp: "
    'python -c "import hanlp; hanlp.load(hanlp.pretrained.tok.FINE_ELECTRA_SMALL_ZH)"'
)


def check_word_splitter(folder: Path) -> None:
    """Raises ModelError, with what to install, if the checkpoint's word splitter cannot run here."""
    kind = read_json(folder / CONFIG).get("words_splitter_type", "whitespace")
    if kind not in WORD_SPLITTERS:
        known = ", ".join(WORD_SPLITTERS)
        raise ModelError(f"words_splitter_type {kind!r} in {CONFIG} is no word splitter of gliner; gliner has {known}")
    missing = [_PACKAGES.get(module, module) for module in WORD_SPLITTERS[kind] if find_spec(module) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise ModelError(
            f"words_splitter_type {kind!r} needs {', '.join(missing)}, which {verb} not installed; {install_hint(kind)}"
        )
    if kind == "stanza":
        _check_stanza()
    if kind == "hanlp":
        _check_hanlp()


def _check_stanza() -> None:
    """Raises ModelError without stanza's model. gliner downloads it, but ignores a failed download; then every text
    fails."""
    splitter = StanzaWordsSplitter(download_on_missing=not constants.HF_HUB_OFFLINE)
    if splitter._pipelines[splitter.default_lang] is None:
        raise ModelError(f"words_splitter_type 'stanza': {_STANZA_DATA}")


def _check_hanlp() -> None:
    """Raises ModelError if gliner cannot load or download HanLP's model."""
    try:
        WordsSplitter("hanlp")
    except Exception as error:
        raise ModelError(f"words_splitter_type 'hanlp': {_HANLP_DATA} ({type(error).__name__})") from error
