"""Fetches the file behind a URL that a request named, under the egress rules: its size, type and time are bounded."""

from carillon.domain.content.mail import Attachment, allowed_type
from carillon.domain.outcomes import Outcome, Refused, Unavailable
from carillon.domain.ports import Clock
from carillon.providers.egress import EgressGuard
from carillon.providers.http import HttpAnswer, HttpClient, HttpRequest, parse_retry_after, unanswered

_LATER = frozenset({408, 425, 429})
_SERVER_ERROR = 500
_ANY_BYTES = frozenset({"application/octet-stream", "binary/octet-stream", ""})
"""The types of a server that does not know what it serves."""


class FileFetcher:
    """One GET for each file; a redirect is not followed, because the rules have checked one URL."""

    def __init__(self, http: HttpClient, guard: EgressGuard, types: tuple[str, ...], clock: Clock) -> None:
        self._http = http
        self._guard = guard
        self._types = types
        self._clock = clock

    async def fetch(self, file: Attachment, most_bytes: int, seconds: float) -> bytes | Outcome:
        """The bytes, or why there are none: Unavailable may be tried again, Refused never."""
        if seconds <= 0.0:
            return Unavailable(f"attachment {file.filename}: no time left to fetch it", "attachment_unavailable")
        request = HttpRequest(
            url=file.url or "",
            method="GET",
            headers={"Accept": f"{file.content_type}, */*;q=0.1", "User-Agent": "Carillon"},
            timeout_seconds=seconds,
            guard=self._guard,
            max_answer=max(0, most_bytes),
        )
        answer = await self._http.post(request)
        named = f"attachment {file.filename}"
        if not isinstance(answer, HttpAnswer):
            failed = unanswered(answer)
            if isinstance(failed, Refused):
                return Refused(f"{named}: {answer.error}", f"attachment_{answer.classification}")
            return Unavailable(f"{named}: {answer.error}", "attachment_unavailable")
        if answer.status in _LATER or answer.status >= _SERVER_ERROR:
            wait = parse_retry_after(answer.headers.get("retry-after"), self._clock.wall())
            return Unavailable(f"{named}: HTTP {answer.status}", "attachment_unavailable", wait)
        return self._checked(file, answer, most_bytes, named)

    def _checked(self, file: Attachment, answer: HttpAnswer, most_bytes: int, named: str) -> bytes | Outcome:
        if not answer.ok:
            return Refused(f"{named}: HTTP {answer.status}", "attachment_refused")
        if not answer.complete:
            if len(answer.body) >= most_bytes:
                return Refused(f"{named}: larger than mail.attachment_bytes allows", "attachment_too_large")
            return Unavailable(f"{named}: the answer broke off", "attachment_unavailable")
        served = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if served not in _ANY_BYTES and (served != file.content_type.lower() or not allowed_type(served, self._types)):
            said = served if served.isprintable() else "another type"
            return Refused(f"{named}: is {said[:100]}, not {file.content_type}", "attachment_type")
        return bytes(answer.body)
