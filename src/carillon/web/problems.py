"""Errors over HTTP: an RFC 9457 problem document with an error code."""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from carillon.domain.errors import BadIntent, CarillonError, Place

MEDIA_TYPE = "application/problem+json"

KINDS: dict[str, tuple[int, str]] = {
    "VALIDATION_ERROR": (400, "The request is not valid"),
    "CHANNEL_REQUIRED": (400, "The channel must be named"),
    "UNKNOWN_CHANNEL": (400, "The channel is not known"),
    "TEMPLATE_RENDER_ERROR": (400, "The template cannot be rendered"),
    "SYNCHRONOUS_UNAVAILABLE": (400, "Synchronous delivery is not available"),
    "UNKNOWN_PROVIDER": (400, "The channel has no such provider"),
    "UNAUTHORIZED": (401, "A valid bearer token is required"),
    "CALLBACK_REFUSED": (401, "The callback is not believed"),
    "FORBIDDEN": (403, "This is not yours to do"),
    "ADMIN_OVERRIDE_REQUIRED": (403, "This is done by hand only on purpose"),
    "NOT_FOUND": (404, "There is nothing here"),
    "TEMPLATE_NOT_FOUND": (404, "The template does not exist"),
    "METHOD_NOT_ALLOWED": (405, "The method is not allowed here"),
    "REQUEST_TIMEOUT": (408, "The request took too long to arrive"),
    "IDEMPOTENCY_CONFLICT": (409, "The idempotency key was used for another request"),
    "CONFLICT": (409, "The state does not allow this"),
    "NOT_RETRYABLE": (409, "Only what has failed can be retried"),
    "PAYLOAD_TOO_LARGE": (413, "The body is too large"),
    "UNSUPPORTED_MEDIA_TYPE": (415, "The body must be JSON"),
    "MISDIRECTED_REQUEST": (421, "This host is not served"),
    "RECIPIENT_UNRESOLVED": (422, "The recipient cannot be found"),
    "UNKNOWN_CATEGORY": (422, "There is no such category"),
    "COUNTRY_NOT_ALLOWED": (422, "No text message goes to this country"),
    "GOAL_UNREACHABLE": (422, "A channel of the chain can never report the goal"),
    "CHANNEL_DISABLED": (422, "The recipient has switched this channel off"),
    "BATCH_REJECTED": (422, "No notification of the batch was accepted"),
    "TOO_MANY_REQUESTS": (429, "Too many requests"),
    "INTERNAL_ERROR": (500, "Something went wrong on our side"),
    "DELIVERY_FAILED": (502, "The provider did not take it"),
    "UNAVAILABLE": (503, "Try again later"),
    "DELIVERY_TIMEOUT": (504, "The provider did not answer in time"),
}
"""Every code with its status and its title; a code that is not listed is a 400."""


class Detail(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is wrong with one field."""

    message: str
    field: str | None = None
    template: str | None = None
    """The template in which it is wrong, and where."""
    part: str | None = None
    line: int | None = None
    column: int | None = None


class ErrorBody(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """The error code and its sentence."""

    code: str
    message: str
    details: list[Detail]
    timestamp: str
    trace_id: str
    notification_id: str | None = None
    """Set if a notification was written nevertheless."""


class ProblemBody(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The problem document."""

    type: str
    title: str
    status: int
    detail: str
    error: ErrorBody
    instance: str | None = None


class Problem(CarillonError):
    """An error that becomes a problem document."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        details: Sequence[Detail] = (),
        headers: Mapping[str, str] | None = None,
        members: Mapping[str, Any] | None = None,
        notification_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = list(details)
        self.headers = dict(headers or {})
        self.notification_id = notification_id
        self.members = dict(members or {})
        """Further members of the problem document, beside the standard ones."""

    @property
    def status(self) -> int:
        return status_of(self.code)


def status_of(code: str) -> int:
    return KINDS.get(code, KINDS["VALIDATION_ERROR"])[0]


def unavailable(message: str, retry_after: int = 1) -> Problem:
    return Problem("UNAVAILABLE", message, headers={"Retry-After": str(retry_after)})


def from_bad_intent(error: BadIntent) -> Problem:
    message = str(error)
    details = [] if error.field is None else [detail(message, error.field, error.place)]
    return Problem(error.code, message, details=details, members=members(error.place))


def detail(message: str, field: str, place: Place | None) -> Detail:
    """What is wrong with a field, and where in a template."""
    if place is None:
        return Detail(message, field)
    return Detail(message, field, place.template, place.part, place.line, place.column)


def members(place: Place | None) -> dict[str, Any]:
    """The place as members of the problem document, where a program finds them without reading details."""
    return {} if place is None else place._asdict()


def document(problem: Problem, *, instance: str, trace_id: str) -> bytes:
    status, title = KINDS.get(problem.code, KINDS["VALIDATION_ERROR"])
    body = ProblemBody(
        type=f"urn:carillon:problem:{problem.code.lower().replace('_', '-')}",
        title=title,
        status=status,
        detail=problem.message,
        instance=instance,
        error=ErrorBody(
            code=problem.code,
            message=problem.message,
            details=problem.details,
            timestamp=rfc3339(dt.datetime.now(dt.UTC)),
            trace_id=trace_id,
            notification_id=problem.notification_id,
        ),
    )
    if not problem.members:
        return msgspec.json.encode(body)
    return msgspec.json.encode({**msgspec.to_builtins(body), **problem.members})


def rfc3339(moment: dt.datetime) -> str:
    """Milliseconds and `Z`, the one form of time in our JSON."""
    return moment.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def rfc3339_ms(unix_ms: float) -> str:
    return rfc3339(dt.datetime.fromtimestamp(unix_ms / 1000, dt.UTC))
