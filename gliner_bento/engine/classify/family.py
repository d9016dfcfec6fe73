"""The family of GLiClass: models that tokenize a text as a whole, and only classify."""

from __future__ import annotations

from gliner_bento.engine.checkpoint.gliclass import GLiClass
from gliner_bento.engine.classify.forward import make_class_forward
from gliner_bento.engine.classify.texts import ClassPreparer
from gliner_bento.engine.layers.factory import LayerFactory
from gliner_bento.engine.options import EngineOptions
from gliner_bento.engine.parts import Parts
from gliner_bento.engine.text.subwords import ModelLimits


class ClassFamily:
    """How GLiClass models are served; see `Family`."""

    tasks = ("classifications",)

    def parts(
        self, model: GLiClass, name: str, options: EngineOptions, layers: LayerFactory | None, *, gliner_forward: bool
    ) -> Parts:
        """See `Family`. gliner_forward: run gliclass's own encoder."""
        assert layers is not None
        preparer = ClassPreparer(
            model, name, self.tasks, window_words=options.window_words, overlap_words=options.window_overlap_words
        )
        return Parts(
            preparer=preparer,
            forward=make_class_forward(model, options, layers, pack=not gliner_forward),
            limits=ModelLimits(words=model.limit, tokens=model.limit, label_tokens=model.limit),
            family=type(model.model.model).__name__,
            tasks=self.tasks,
            max_labels_per_pass=model.max_labels,
        )
