"""Presidio's analyzer with GLiNER as a service: its patterns and checksums, and this server's model, in one answer.

pip install presidio-analyzer; a server runs at $URL, by default http://localhost:3000. The text is the first argument.
No spaCy model is needed: names are found by the server.
"""

from __future__ import annotations

import os
import sys

import httpx
from presidio_analyzer import AnalyzerEngine, RecognizerResult, RemoteRecognizer
from presidio_analyzer.nlp_engine import NoOpNlpEngine

ENTITIES = ["PERSON", "ORGANIZATION", "LOCATION", "DATE_TIME", "NRP"]
"""What the model finds better than patterns."""


class GLiNERServer(RemoteRecognizer):
    """Asks `POST /analyze` of a server."""

    def __init__(self, url: str = "http://localhost:3000", entities: list[str] | None = None) -> None:
        self._client = httpx.Client(base_url=url, timeout=60)
        super().__init__(supported_entities=entities or ENTITIES, supported_language="en", name="GLiNER", version="1")

    def load(self) -> None:
        """The server has loaded the model."""

    def get_supported_entities(self) -> list[str]:
        """The names that are sent to the server."""
        return list(self.supported_entities)

    def analyze(self, text: str, entities: list[str], nlp_artifacts: object = None) -> list[RecognizerResult]:
        """The server's findings."""
        wanted = [name for name in self.supported_entities if name in entities]
        if not wanted or not text.strip():
            return []
        body = {"text": text, "language": self.supported_language, "entities": wanted}
        answer = self._client.post("/analyze", json=body)
        answer.raise_for_status()
        return [RecognizerResult(one["entity_type"], one["start"], one["end"], one["score"]) for one in answer.json()]


def main() -> None:
    """Show what is found."""
    text = sys.argv[1] if len(sys.argv) > 1 else "Bill Gates paid with 4111 1111 1111 1111 in Redmond."
    analyzer = AnalyzerEngine(nlp_engine=NoOpNlpEngine([{"lang_code": "en", "model_name": ""}]))
    analyzer.registry.add_recognizer(GLiNERServer(os.environ.get("URL", "http://localhost:3000")))
    for found in sorted(analyzer.analyze(text, language="en"), key=lambda one: one.start):
        sys.stdout.write(f"{found.entity_type} {text[found.start : found.end]} {found.score:.2f}\n")


if __name__ == "__main__":
    main()
