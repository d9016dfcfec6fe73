"""`GLiClassEngine` implements the engine contract for GLiClass models."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from gliner_bento.engine.checkpoint.fingerprint import fingerprint_of
from gliner_bento.engine.checkpoint.gliclass import GLiClass
from gliner_bento.engine.classify.forward import make_class_forward
from gliner_bento.engine.classify.texts import ClassPreparer
from gliner_bento.engine.engine import GLiNEREngine
from gliner_bento.engine.options import EngineOptions
from gliner_bento.engine.text.subwords import ModelLimits
from gliner_bento.status_types import ModelInfo
from gliner_bento.tasks.classifications import Classification
from gliner_bento.tasks.extraction import ExtractionItem


class GLiClassEngine(GLiNEREngine):
    """A `GLiNEREngine` for models that tokenize a text as a whole and only classify."""

    _probe = ExtractionItem(
        "Nobody was asked.",
        classifications={"a": Classification({"b": "answer", "c": "question"})},
        long_text="truncate",
    )

    def __init__(
        self,
        model: GLiClass,
        name: str,
        options: EngineOptions,
        languages: Sequence[str] = (),
        *,
        gliner_forward: bool = False,
        padded: bool | None = None,
    ) -> None:
        """gliner_forward: run gliclass's own forward pass."""
        tasks = ("classifications",)
        self._device = model.device
        self._limits = ModelLimits(words=model.limit, tokens=model.limit, label_tokens=model.limit)
        self._preparer = ClassPreparer(
            model, name, tasks, window_words=options.window_words, overlap_words=options.window_overlap_words
        )
        build_forward = partial(make_class_forward, model, options, pack=not gliner_forward)
        self._forward = self._torch_forward(model, build_forward, options, padded=padded)
        self.packs = self._forward.packs
        dtype = str(next(model.model.parameters()).dtype).removeprefix("torch.")
        self.info = ModelInfo(
            model=name,
            family=type(model.model.model).__name__,
            supports_relations=False,
            tasks=tasks,
            supports_adapters=self.adapter_slots is not None,
            device=str(self._device),
            dtype="int8" if options.quantization == "int8" and not gliner_forward else dtype,
            max_words=model.limit,
            max_span_width=None,
            forward=self._forward.name,
            max_labels_per_pass=model.max_labels,
            fingerprint=fingerprint_of(model.model),
            languages=languages,
        )
