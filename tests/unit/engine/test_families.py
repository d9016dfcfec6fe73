"""The table of families is complete, and the only place that knows gliner's classes."""

from __future__ import annotations

import ast
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

from gliner_bento.settings.configuration import PROJECT_ROOT

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from gliner import model as gliner_models

    from gliner_bento.engine.checkpoint.find import ModelError
    from gliner_bento.engine.checkpoint.gliclass import GLiClass
    from gliner_bento.engine.checkpoint.gliner2 import GLiNER2Boundary, GLiNER2Span
    from gliner_bento.engine.families import FAMILIES, family_of

ENGINE = PROJECT_ROOT / "gliner_bento" / "engine"
MODULES = [path for path in ENGINE.rglob("*.py") if path.name != "families.py"]


def subclasses(kind: type) -> set[type]:
    return {kind}.union(*map(subclasses, kind.__subclasses__()))


def test_every_checkpoint_class_of_gliner_is_served_or_known_not_to_be() -> None:
    concrete = {kind for kind in subclasses(gliner_models.BaseGLiNER) if not kind.__name__.startswith("Base")}
    not_served = {gliner_models.StreamingSpanGLiNER}
    assert {kind for kind in concrete if kind.__module__ == gliner_models.__name__} == set(FAMILIES) - {
        GLiClass,
        GLiNER2Boundary,
        GLiNER2Span,
    } | not_served


def test_a_class_that_is_not_in_the_table_is_refused() -> None:
    with pytest.raises(ModelError, match="'mine' is a SimpleNamespace, which is not served"):
        family_of(SimpleNamespace(), "mine")


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.relative_to(ENGINE).as_posix())
def test_no_other_module_knows_the_classes(module: Path) -> None:
    imports = [node for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.ImportFrom)]
    names = {f"{node.module}.{alias.name}" for node in imports for alias in node.names}
    assert not {name for name in names if name.startswith(("gliner.model.", "gliner.modeling.base"))}
    assert "gliner.model" not in names
