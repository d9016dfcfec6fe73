"""The templates of the training data, read once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from training.ontology import Ontology
    from training.templates import Library


@pytest.fixture(scope="session")
def ontology() -> Ontology:
    from training.ontology import Ontology

    return Ontology()


@pytest.fixture(scope="session")
def library(ontology: Ontology) -> Library:
    from training.templates import load_library

    return load_library(ontology)
