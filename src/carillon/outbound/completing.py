"""Completes an email before its call: fetches the files behind URLs, and leaves out copies that are suppressed."""

import asyncio
import base64
from collections.abc import Awaitable, Callable

import msgspec
from msgspec.structs import replace

from carillon.domain.claims import Claim
from carillon.domain.content.mail import Attachment, MailParts
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.outcomes import Outcome, Refused, Throttled

AT_ONCE = 8
"""Emails that are completed at once: each may hold as many bytes as `mail.attachment_bytes`."""

Fetch = Callable[[Attachment, int, float], Awaitable[bytes | Outcome]]
"""Fetches a file of at most so many bytes within so many seconds; the outcome says why there is none."""
IsSuppressed = Callable[[str, str | None], Awaitable[bool]]
"""Whether nothing is sent to an address of email, for a tenant; raises LedgerUnavailable."""
Keep = Callable[[Claim], Awaitable[bool]]
"""Stores the message of a claim; False if the claim is lost. Raises LedgerUnavailable."""


class MailCompleter:
    """The completed message is stored before the first call, so that every repeat sends the same bytes."""

    def __init__(
        self, fetch: Fetch, is_suppressed: IsSuppressed, keep: Keep, *, most_bytes: int, fetch_seconds: float
    ) -> None:
        self._fetch = fetch
        self._is_suppressed = is_suppressed
        self._keep = keep
        self._most_bytes = most_bytes
        self._fetch_seconds = fetch_seconds
        self._places = asyncio.Semaphore(AT_ONCE)

    async def complete(self, claim: Claim, seconds: float) -> Outcome | None:
        """Change the claim's message; an outcome if the email cannot be sent now, or never."""
        message = claim.message()
        if message is None or message.mail is None:
            return None
        async with self._places:
            try:
                parts = await self._without_suppressed(message.mail, claim.tenant_id)
                files = await self._fetched(parts, min(seconds, self._fetch_seconds))
                if not isinstance(files, tuple):
                    return files
                completed = replace(message, mail=replace(parts, attachments=files))
                if completed == message:
                    return None
                claim.message_json = msgspec.json.encode(completed).decode()
                kept = await self._keep(claim)
            except LedgerUnavailable as error:
                return Throttled(f"the ledger does not answer: {error}", classification="ledger_unavailable")
        return None if kept else Throttled("another worker holds this route", 0.0, "claim_lost")

    async def _without_suppressed(self, parts: MailParts, tenant_id: str | None) -> MailParts:
        out = [address for address in parts.copies if await self._is_suppressed(address, tenant_id)]
        if not out:
            return parts
        return replace(
            parts,
            cc=tuple(address for address in parts.cc if address not in out),
            bcc=tuple(address for address in parts.bcc if address not in out),
            left_out=(*parts.left_out, *out),
        )

    async def _fetched(self, parts: MailParts, seconds: float) -> tuple[Attachment, ...] | Outcome:
        """The attachments with their bytes; they share the size and the time."""
        ends = asyncio.get_running_loop().time() + seconds
        room = self._most_bytes - sum(one.size() for one in parts.attachments)
        files: list[Attachment] = []
        for one in parts.attachments:
            if one.content is not None:
                files.append(one)
                continue
            left = max(0.0, ends - asyncio.get_running_loop().time())
            found = await self._fetch(one, room, left)
            if not isinstance(found, bytes):
                return found
            room -= len(found)
            if room < 0:
                return Refused(f"attachment {one.filename}: larger than mail.attachment_bytes", "attachment_too_large")
            files.append(replace(one, content=base64.b64encode(found).decode()))
        return tuple(files)
