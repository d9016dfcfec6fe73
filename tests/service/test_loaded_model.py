"""`gliner_bento.load`: a model in this process behind plain functions."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

import gliner_bento
from gliner_bento.errors import InvalidField, NotReady
from gliner_bento.settings.configuration import PROJECT_ROOT, SettingsError

TEXT = "Grace Hopper taught in Boston."
SETTINGS = {"dtype": "float32", "self_test": False, "batch_invariant": False}


def test_a_loaded_model_answers_as_the_client_also_in_a_running_loop():
    with gliner_bento.load(**SETTINGS) as model:
        answer = model.extract(TEXT, ["person", "city"])
        assert [(one.text, one.label) for one in answer.entities] == [("Grace Hopper", "person"), ("Boston", "city")]
        assert "Grace Hopper" in answer._repr_html_()

        async def cell():
            waited = asyncio.create_task(model.aextract(TEXT, ["person", "city"]))
            return model.extract(TEXT, ["person", "city"]).entities, (await waited).entities

        assert asyncio.run(cell()) == (answer.entities, answer.entities)
        assert len(model.extract_batch([TEXT] * 2, ["person"]).results) == 2
        assert [one.result.entities[0].text for one in model.extract_many([TEXT] * 3, ["person"])] == [
            "Grace Hopper"
        ] * 3
        assert model.model().model == "demo"
        with pytest.raises(InvalidField, match="threshold"):
            model.extract(TEXT, ["person"], threshold=7)
    with pytest.raises(NotReady, match="the model is closed"):
        model.extract(TEXT, ["person"])


def test_a_model_that_nobody_closes_ends_with_its_process():
    program = (
        f"import gliner_bento; print(gliner_bento.load(**{SETTINGS!r}).extract({TEXT!r}, ['city']).entities[0].text)"
    )
    program += f"; kept = gliner_bento.load(**{SETTINGS!r})"
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT_ROOT, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, "Traceback" in ended.stderr) == (0, "Boston\n", False), ended.stderr


def test_a_wrong_setting_is_named():
    with pytest.raises(SettingsError, match="dtyp"):
        gliner_bento.load(dtyp="float32")
