"""The error tree: every error a caller may see, with its code, HTTP status and public message.

An error travels between processes as data (`ErrorDetail`), never as a pickled exception. Anything that is not in this
tree is an internal fault: it is logged whole where it happens and answered as `internal`.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, Field


class ErrorDetail(BaseModel):
    """What a caller is told about a failure; the value of `error` in the one error body."""

    code: str = Field(description="Stable, machine-readable name of the failure.", examples=["invalid_field"])
    message: str = Field(description="One sentence for people.", examples=["threshold: must be between 0 and 1"])
    param: str | None = Field(default=None, description="The field at fault, as a path.", examples=["threshold"])
    request_id: str | None = Field(default=None, description="The request's id, as sent or as given by the server.")


class ErrorBody(BaseModel):
    """The one error body that every route answers with."""

    error: ErrorDetail


class GLiNERBentoError(Exception):
    """Base of the tree. `message` is public: it never holds a stack trace, a path or another tenant's data."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param

    def detail(self, request_id: str | None = None) -> ErrorDetail:
        """This error as data."""
        return ErrorDetail(code=self.code, message=self.message, param=self.param, request_id=request_id)


class InternalError(GLiNERBentoError):
    """A fault of ours; the log has the details."""

    def __init__(self, message: str = "internal error; the server's log has the details", **kwargs: str) -> None:
        super().__init__(message, param=kwargs.get("param"))


class MalformedRequest(GLiNERBentoError):
    """The body is not JSON, or not JSON that a request could be."""

    code = "malformed_request"
    status = 400


class RouteNotFound(GLiNERBentoError):
    """No such route."""

    code = "not_found"
    status = 404


class AdapterNotFound(GLiNERBentoError):
    """The `adapter_id` names no adapter of this server."""

    code = "adapter_not_found"
    status = 404


class MethodNotAllowed(GLiNERBentoError):
    """The route exists, the method does not."""

    code = "method_not_allowed"
    status = 405


class Conflict(GLiNERBentoError):
    """What is asked for contradicts what is there already."""

    code = "conflict"
    status = 409


class TooLarge(GLiNERBentoError):
    """More than a limit of this server or of the model allows."""

    code = "too_large"
    status = 413


class UnsupportedMediaType(GLiNERBentoError):
    """The body's media type is not one that this server reads."""

    code = "unsupported_media_type"
    status = 415


class InvalidField(GLiNERBentoError):
    """A field is missing, unknown or has a value that it may not have; `param` names it."""

    code = "invalid_field"
    status = 422


class AdapterInvalid(GLiNERBentoError):
    """The files are no adapter that this model can have; the message names the field, file or layer at fault."""

    code = "adapter_invalid"
    status = 422


class QueueFull(GLiNERBentoError):
    """Refused at admission; try again later."""

    code = "queue_full"
    status = 429


class Aborted(GLiNERBentoError):
    """The request was aborted before it finished."""

    code = "aborted"
    status = 499


class NotReady(GLiNERBentoError):
    """The server is starting, draining, or its inference loop has died."""

    code = "not_ready"
    status = 503


class DeadlineExceeded(GLiNERBentoError):
    """The request's deadline passed before it finished."""

    code = "deadline_exceeded"
    status = 504


class DoesNotFit(GLiNERBentoError):
    """A single item needs more memory than the device has."""

    code = "does_not_fit"
    status = 507


class StorageFull(GLiNERBentoError):
    """The server's disk, or the number of adapters that it may hold, leaves no room."""

    code = "storage_full"
    status = 507


def _tree(cls: type[GLiNERBentoError]) -> dict[str, type[GLiNERBentoError]]:
    found = {cls.code: cls} if cls is not GLiNERBentoError else {}
    for child in cls.__subclasses__():
        found |= _tree(child)
    return found


ERRORS_BY_CODE: dict[str, type[GLiNERBentoError]] = _tree(GLiNERBentoError)


def from_detail(detail: ErrorDetail) -> GLiNERBentoError:
    """The exception that `detail` was made from; an unknown code becomes an `InternalError`."""
    return ERRORS_BY_CODE.get(detail.code, InternalError)(detail.message, param=detail.param)
