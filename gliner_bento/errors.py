"""The error tree: every error that a caller may see, with its code and public message. The gateway maps codes to HTTP
statuses.

An error is sent between processes as data (`ErrorDetail`), never as a pickled exception. An exception that is not in
this tree is an internal fault: it is logged with its traceback where it happens, and reported as `internal`.

An error that keeps a process from starting is a `StartupError`, which is not in the tree: one line for the operator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field


@dataclass(frozen=True, slots=True)
class ErrorDetail:
    """A failure, as data; the value of `error` in `ErrorBody`."""

    code: Annotated[str, Field(description="Stable, machine-readable name of the failure.", examples=["invalid_field"])]
    message: Annotated[
        str, Field(description="One sentence for people.", examples=["threshold: must be between 0 and 1"])
    ]
    param: Annotated[str | None, Field(description="The wrong field, as a path.", examples=["threshold"])] = None
    request_id: Annotated[
        str | None, Field(description="The request's id, as sent by the caller or made by the server.")
    ] = None


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """The error body of every route but those of other servers' formats."""

    error: ErrorDetail

    @classmethod
    def of(cls, detail: ErrorDetail, _status: int) -> ErrorBody:
        """The body of an error. _status: not used here; the bodies of some other formats contain it."""
        return cls(detail)


class GLiNERBentoError(Exception):
    """Base of the tree. `message` is public: it never holds a stack trace, a path or another tenant's data."""

    code: ClassVar[str] = "internal"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param

    def detail(self, request_id: str | None = None) -> ErrorDetail:
        """This error as data."""
        return ErrorDetail(code=self.code, message=self.message, param=self.param, request_id=request_id)


class InternalError(GLiNERBentoError):
    """A fault of the server; its log has the details."""

    def __init__(
        self, message: str = "internal error; the server's log has the details", *, param: str | None = None
    ) -> None:
        super().__init__(message, param=param)


class MalformedRequest(GLiNERBentoError):
    """The request cannot be parsed, for example because its body is not valid JSON."""

    code = "malformed_request"


class Unauthorized(GLiNERBentoError):
    """The request has no valid API key."""

    code = "unauthorized"


class Forbidden(GLiNERBentoError):
    """The API key does not allow this; the message names the scope that it lacks."""

    code = "forbidden"


class RequestTimeout(GLiNERBentoError):
    """The request did not arrive in time."""

    code = "request_timeout"


class HeadersTooLarge(GLiNERBentoError):
    """The request's headers are too large."""

    code = "headers_too_large"


class RouteNotFound(GLiNERBentoError):
    """No such route."""

    code = "not_found"


class ModelNotFound(GLiNERBentoError):
    """The request names a model that this server does not have."""

    code = "model_not_found"


class ModelNotLoaded(GLiNERBentoError):
    """The model is not loaded now; the message says why, and whether it will be."""

    code = "model_not_loaded"


class ModelFailed(GLiNERBentoError):
    """The model cannot be loaded; the message says why."""

    code = "model_failed"


class AdapterNotFound(GLiNERBentoError):
    """The `adapter_id` names no adapter of this server."""

    code = "adapter_not_found"

    @classmethod
    def disabled(cls, param: str | None = None) -> AdapterNotFound:
        """The server has no adapters at all."""
        message = "adapters are not enabled (setting enable_lora, flag --enable-lora)"
        return cls(f"{param}: {message}" if param else message, param=param)


class MethodNotAllowed(GLiNERBentoError):
    """The route exists, the method does not."""

    code = "method_not_allowed"


class NotSupported(GLiNERBentoError):
    """This server cannot do what is asked; another backend can, or the server whose format the client uses."""

    code = "not_supported"


class Conflict(GLiNERBentoError):
    """The request contradicts the current state."""

    code = "conflict"


class TooLarge(GLiNERBentoError):
    """The text, batch, body or adapter exceeds a limit of this server or of the model."""

    code = "too_large"


class LimitExceeded(GLiNERBentoError):
    """The result would be larger than a limit of this server allows, usually because a threshold is too low."""

    code = "limit_exceeded"


class UnsupportedMediaType(GLiNERBentoError):
    """The body's media type is not supported."""

    code = "unsupported_media_type"


class InvalidField(GLiNERBentoError):
    """A field is missing, unknown or has an invalid value; `param` names it."""

    code = "invalid_field"


class AdapterInvalid(GLiNERBentoError):
    """The files are not a valid adapter of this model; the message names the wrong field, file or layer."""

    code = "adapter_invalid"


class QueueFull(GLiNERBentoError):
    """Refused at admission; try again after `retry_after_s`."""

    code = "queue_full"

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: int = 1) -> None:
        super().__init__(message, param=param)
        self.retry_after_s = retry_after_s


class RateLimited(GLiNERBentoError):
    """The tenant exceeds its limit on concurrent requests or requests per second; try again after `retry_after_s`."""

    code = "rate_limited"

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: int = 1) -> None:
        super().__init__(message, param=param)
        self.retry_after_s = retry_after_s


class Aborted(GLiNERBentoError):
    """The request was aborted before it finished."""

    code = "aborted"


class NotReady(GLiNERBentoError):
    """The server is starting or draining, or its inference loop has died."""

    code = "not_ready"


class DeadlineExceeded(GLiNERBentoError):
    """The request's deadline passed before it finished."""

    code = "deadline_exceeded"

    @classmethod
    def before(cls, event: str) -> DeadlineExceeded:
        """The deadline passed before `event`; the message names the settings and fields that limit the time."""
        limits = "timeout_ms of the request, request_timeout_s of the server"
        return cls(f"the deadline passed before {event} (limits: {limits})")


class DoesNotFit(GLiNERBentoError):
    """A single item needs more memory than the device has, or a model more than is free."""

    code = "does_not_fit"


class ScoresNotFinite(GLiNERBentoError):
    """The model's scores for an item are not numbers, because weights of the model or of the item's adapter do not fit
    the model's dtype."""

    code = "scores_not_finite"

    def __init__(self, message: str = "the model's scores are not numbers (NaN)", *, param: str | None = None) -> None:
        super().__init__(message, param=param)


class EndsProcess(GLiNERBentoError):
    """The model's process ended each time that it ran this text. Sent again, the text would end further processes."""

    code = "ends_process"

    def __init__(
        self,
        message: str = "the model's process ended each time that it ran this text, which seems to be the cause; "
        "the text is not repeated: do not send it again",
        *,
        param: str | None = None,
    ) -> None:
        super().__init__(message, param=param)


class StorageUnavailable(GLiNERBentoError):
    """The server cannot write to its disk, or use its Redis; its log has the details."""

    code = "storage_unavailable"


class StorageFull(GLiNERBentoError):
    """The server's disk, or its limit on adapters, is exhausted."""

    code = "storage_full"


def _by_code(cls: type[GLiNERBentoError]) -> dict[str, type[GLiNERBentoError]]:
    by_code = {cls.code: cls} if cls is not GLiNERBentoError else {}
    for child in cls.__subclasses__():
        by_code |= _by_code(child)
    return by_code


ERRORS_BY_CODE: dict[str, type[GLiNERBentoError]] = _by_code(GLiNERBentoError)


def from_detail(detail: ErrorDetail) -> GLiNERBentoError:
    """The exception for `detail`; an unknown code becomes an `InternalError`."""
    return ERRORS_BY_CODE.get(detail.code, InternalError)(detail.message, param=detail.param)


_MAX_CHARS = 600


class StartupError(Exception):
    """The server, or a command, cannot start. The message says what is wrong, why, and what to do."""


def one_line(error: BaseException) -> str:
    """The error's message, or the name of its type if the message is empty, on one line of limited length."""
    text = " ".join(_message(error).split()) or type(error).__name__
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}..."


def _message(error: BaseException) -> str:
    """An error of the system without its number, behind the name of its file."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    return f"{error.filename}: {error.strerror}" if isinstance(error.filename, str) else error.strerror


def install_hint(extra: str) -> str:
    """The end of an error message: how to install a missing `extra`."""
    return f"install the extra {extra}: pip install 'gliner-bento[{extra}]' (docs/quickstart.md)"
