"""Where the bundled model is found, and what a server says where it is not."""

from __future__ import annotations

import sys

import pytest

from gliner_bento.engine.checkpoint.find import ModelError
from gliner_bento.engine.checkpoint.resolve import find_checkpoint
from gliner_bento.engine.options import CheckpointOptions
from gliner_bento.settings import PROJECT_ROOT, Settings, field_types
from gliner_bento.storage.bundled import BUNDLED, installed_models, models_below


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """As where a package is installed: neither the working directory nor the root has the folder models."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(field_types, "PROJECT_ROOT", tmp_path)
    return tmp_path


def test_a_checkouts_model_is_the_folder_of_the_package_that_is_built_of_it(elsewhere, monkeypatch):
    assert models_below(PROJECT_ROOT) == PROJECT_ROOT / "models"
    monkeypatch.delitem(sys.modules, "gliner_bento_demo", raising=False)
    monkeypatch.syspath_prepend(elsewhere / "site")
    package = elsewhere / "site" / "gliner_bento_demo"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "demo").symlink_to(PROJECT_ROOT / BUNDLED)
    assert models_below(elsewhere) == installed_models() == package
    assert Settings.load({}).model == str((PROJECT_ROOT / BUNDLED).resolve())


def test_without_the_package_one_line_names_it_and_no_hub_is_asked(elsewhere):
    if installed_models():
        pytest.skip("gliner-bento-demo is installed")
    model = Settings.load({}).model
    assert model == BUNDLED
    with pytest.raises(ModelError, match=r"the bundled model is not installed: pip install gliner-bento-demo"):
        find_checkpoint(model, Settings.load({}).view(CheckpointOptions))
    assert models_below(elsewhere) is None
