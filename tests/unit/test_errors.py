"""The error tree."""

from __future__ import annotations

import dataclasses

import pytest

from gliner_bento import errors
from gliner_bento.errors import (
    ERRORS_BY_CODE,
    ErrorDetail,
    GLiNERBentoError,
    InternalError,
    from_detail,
)


@pytest.mark.parametrize("error", list(ERRORS_BY_CODE.values()))
def test_an_error_survives_as_data(error):
    sent = error("the message", param="labels.0")
    detail = sent.detail("r1")
    assert detail == ErrorDetail(error.code, "the message", "labels.0", "r1")
    back = from_detail(ErrorDetail(**dataclasses.asdict(detail)))
    assert type(back) is error
    assert (back.message, back.param, back.code, str(back)) == ("the message", "labels.0", error.code, "the message")


def test_codes_are_unique_and_every_error_has_one():
    tree = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, GLiNERBentoError) and kind is not GLiNERBentoError
    ]
    assert sorted(ERRORS_BY_CODE) == sorted({kind.code for kind in tree})
    assert len(ERRORS_BY_CODE) == len(tree)


def test_an_error_knows_no_http():
    assert not [kind for kind in ERRORS_BY_CODE.values() if hasattr(kind, "status")]


def test_an_unknown_code_is_an_internal_error():
    assert isinstance(from_detail(ErrorDetail(code="from_the_future", message="?")), InternalError)
