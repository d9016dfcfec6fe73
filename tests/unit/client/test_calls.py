"""What the clients send, and what they make of answers, good and bad."""

import httpx
import pytest

from gliner_bento.client import calls
from gliner_bento.errors import InternalError, InvalidField, NotReady


def test_a_call_carries_its_options():
    call = calls.extract("a", ["x"], {"threshold": 0.3})
    assert (call.method, call.path) == ("POST", "/v1/extract")
    assert call.body == {"text": "a", "labels": ["x"], "threshold": 0.3}


def test_an_id_cannot_leave_its_place_in_the_path():
    assert calls.abort("a/../../model?x").path == "/v1/requests/a%2F..%2F..%2Fmodel%3Fx/abort"


def test_the_servers_error_is_raised_as_what_it_was():
    body = {"error": {"code": "invalid_field", "message": "labels: wrong", "param": "labels", "request_id": "r"}}
    with pytest.raises(InvalidField, match="labels: wrong") as caught:
        calls.model().read(httpx.Response(422, json=body))
    assert caught.value.param == "labels"


@pytest.mark.parametrize(("status", "error"), [(502, NotReady), (503, NotReady), (500, InternalError)])
def test_an_error_that_is_not_the_servers_is_told_by_its_status(status, error):
    with pytest.raises(error, match=str(status)):
        calls.model().read(httpx.Response(status, text="<html>a proxy speaks</html>"))
