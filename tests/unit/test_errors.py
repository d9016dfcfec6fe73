"""The error tree."""

import pytest

from gliner_bento.errors import (
    ERRORS_BY_CODE,
    ErrorDetail,
    GLiNERBentoError,
    InternalError,
    from_detail,
)


@pytest.mark.parametrize("error", list(ERRORS_BY_CODE.values()))
def test_an_error_survives_the_way_over_the_hop(error):
    sent = error("the message", param="labels.0")
    back = from_detail(ErrorDetail.model_validate(sent.detail("r1").model_dump()))
    assert type(back) is error
    assert (back.message, back.param, back.status) == ("the message", "labels.0", error.status)


def test_codes_are_unique_and_statuses_are_errors():
    assert len(ERRORS_BY_CODE) == len(GLiNERBentoError.__subclasses__())
    assert all(400 <= error.status < 600 for error in ERRORS_BY_CODE.values())


def test_an_unknown_code_is_an_internal_error():
    assert isinstance(from_detail(ErrorDetail(code="from_the_future", message="?")), InternalError)
