"""The checkpoint's model card: `README.md` with metadata in YAML, as on the Hugging Face hub."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import metadata_load

CARD = "README.md"

logger = logging.getLogger(__name__)


def languages_of(folder: Path) -> Sequence[str]:
    """The card's `language`, which may be one string or a list. Empty if there is no card, or it names no language."""
    if not (folder / CARD).is_file():
        return ()
    try:
        listed = (metadata_load(folder / CARD) or {}).get("language")
    except Exception as error:
        logger.warning("the model's languages are unknown: its %s cannot be parsed: %s", CARD, error)
        return ()
    languages = listed if isinstance(listed, list) else [listed]
    # YAML reads `no`, the code of Norwegian, as false.
    return ["no" if language is False else str(language) for language in languages if language not in {None, ""}]
