"""Email over SMTP, with a small pool of connections."""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated
from urllib.parse import parse_qs, unquote, urlsplit

import aiosmtplib
import msgspec
from aiosmtplib import errors

from carillon.domain.claims import Dispatch
from carillon.domain.outcomes import Outcome, Refused, Sent, Unavailable, Unknown
from carillon.domain.ports import Clock
from carillon.providers import Tools
from carillon.providers.echoes import without_in
from carillon.providers.letters import Letter, write_letter
from carillon.providers.mail import parse_sender, read_mail
from carillon.providers.tools import Secret

CHANNELS = frozenset({"email"})
TELLS: frozenset[str] = frozenset()
"""A relay takes the mail, and nothing comes back."""
_MAX_ERROR = 1000
_FAREWELL_SECONDS = 1.0
_CLOSING, _FIRST_TEMPORARY, _FIRST_PERMANENT = 421, 400, 500
_GREYLISTING = frozenset({450, 451})
_NO_SUCH_MAILBOX = frozenset({550, 551, 553})
_REPLIES = (errors.SMTPSenderRefused, errors.SMTPRecipientRefused, errors.SMTPDataError)
_NOT_AUTHENTICATED = frozenset({530, 534, 535, 538})


class Settings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The server, the credentials and the sender."""

    url: Secret
    """`smtp://user:word@host:587?starttls=1` or `smtps://…`; without `starttls` TLS is used if the server offers it."""
    sender: str
    ca_file: str | None = None
    local_hostname: str | None = None
    connections: Annotated[int, msgspec.Meta(ge=1, le=100)] = 4
    idle_seconds: Annotated[float, msgspec.Meta(ge=0.0)] = 30.0


class _Server(msgspec.Struct, frozen=True):
    host: str
    port: int
    implicit_tls: bool
    starttls: bool | None
    user: str | None
    password: Secret | None


class Smtp:
    """One mail for each message; a connection serves one mail at a time."""

    def __init__(self, name: str, settings: Settings, clock: Clock) -> None:
        self.name = name
        self._sender = parse_sender(settings.sender)
        self._clock = clock
        self._place = _read_url(settings.url)
        self._tls = ssl.create_default_context(cafile=settings.ca_file)
        self._local_hostname = settings.local_hostname
        self._idle_seconds = settings.idle_seconds
        self.calls_at_once = settings.connections
        self._slots = asyncio.Semaphore(settings.connections)
        self._idle: deque[tuple[aiosmtplib.SMTP, float]] = deque()

    async def send(self, dispatch: Dispatch) -> Outcome:
        mail = read_mail(dispatch, self._sender, needs_subject=False)
        if isinstance(mail, Refused):
            return mail
        try:
            letter = write_letter(dispatch.claim, mail)
        except ValueError as error:
            return Refused(f"this cannot become a mail: {error}", classification="bad_content")
        last = dispatch.claim.attempt >= dispatch.claim.max_attempts
        delivery = _Delivery(letter, self._hide, wait_for_copies=not last)
        try:
            async with asyncio.timeout(dispatch.timeout_seconds), self._slots:
                return await self._deliver(delivery)
        except TimeoutError:
            return delivery.broken(f"no answer within {dispatch.timeout_seconds:g} s", "timeout")

    def _hide(self, text: str) -> str:
        """Without the credentials that a server repeats."""
        user, password = self._place.user or "", self._place.password
        secrets = () if password is None else (password.reveal(), f"{user}:{password.reveal()}")
        return without_in(text[: 4 * _MAX_ERROR], secrets)[:_MAX_ERROR]

    async def probe(self) -> str | None:
        connection = self._fresh()
        try:
            await connection.connect()
        except (errors.SMTPException, OSError) as error:
            return self._hide(_text(error))
        finally:
            _drop(connection, connection.transport)
        return None

    async def aclose(self) -> None:
        while self._idle:
            connection, _ = self._idle.pop()
            transport = connection.transport
            with suppress(errors.SMTPException, OSError):
                await connection.quit(timeout=_FAREWELL_SECONDS)
            _drop(connection, transport)

    async def _deliver(self, delivery: "_Delivery") -> Outcome:
        kept = self._take_idle()
        if kept is not None:
            outcome = await self._try(kept, delivery)
            if not delivery.stale:
                return outcome
        return await self._try(self._fresh(), delivery)

    async def _try(self, connection: aiosmtplib.SMTP, delivery: "_Delivery") -> Outcome:
        keep = False
        try:
            outcome = await delivery.run(connection)
            keep = delivery.reusable and connection.is_connected
            return outcome
        finally:
            # After a timeout or an error the dialogue is in an unknown state: never reuse the connection.
            if keep:
                self._idle.append((connection, self._clock.monotonic()))
            else:
                _drop(connection, connection.transport)

    def _take_idle(self) -> aiosmtplib.SMTP | None:
        while self._idle:
            connection, since = self._idle.pop()
            if connection.is_connected and self._clock.monotonic() - since <= self._idle_seconds:
                return connection
            _drop(connection, connection.transport)
        return None

    def _fresh(self) -> aiosmtplib.SMTP:
        place = self._place
        return aiosmtplib.SMTP(
            hostname=place.host,
            port=place.port,
            username=place.user,
            password=None if place.password is None else place.password.reveal(),
            use_tls=place.implicit_tls,
            start_tls=False if place.implicit_tls else place.starttls,
            tls_context=self._tls,
            local_hostname=self._local_hostname,
            # The deadline of the dispatch applies instead.
            timeout=None,
        )


class _Delivery:
    """The progress of one mail, which decides the outcome of a failure."""

    def __init__(self, letter: Letter, hide: Callable[[str], str], *, wait_for_copies: bool) -> None:
        self._letter = letter
        self._hide = hide
        self._wait_for_copies = wait_for_copies
        """Whether a copy that is refused for the moment holds the mail back; nothing of it has been sent by then."""
        self._data_begun = False
        self.reusable = True
        self.stale = False
        """True when a pooled connection was dead before any of the mail was sent."""

    async def run(self, connection: aiosmtplib.SMTP) -> Outcome:
        kept = connection.is_connected
        self.reusable, self.stale = True, False
        try:
            # RSET here, and not after a failure: a slow RSET must not delay a reply that we already have.
            await (connection.rset() if kept else connection.connect())
            return await self._converse(connection)
        except errors.SMTPResponseException as error:
            answered = isinstance(error, _REPLIES) and error.code != _CLOSING
            self.reusable = answered
            self.stale = kept and not answered and not self._data_begun
            return self._answered(error)
        except (errors.SMTPException, OSError) as error:
            self.reusable = False
            self.stale = kept and not self._data_begun
            return self.broken(self._hide(_text(error)), _kind(error))
        except ValueError as error:
            return Refused(f"this cannot become a mail: {error}", classification="bad_content")

    async def _converse(self, connection: aiosmtplib.SMTP) -> Outcome:
        letter = self._letter
        utf8 = letter.needs_utf8
        encoding = "utf-8" if utf8 else "ascii"
        if utf8 and not connection.supports_extension("smtputf8"):
            return Refused("the server takes no international addresses", classification="smtputf8_unsupported")
        options = ["SMTPUTF8", "BODY=8BITMIME"] if utf8 else []
        await connection.mail(letter.sender.address, options=options, encoding=encoding)
        await connection.rcpt(letter.recipient.address, encoding=encoding)
        refused = 0
        for copy in letter.copies:
            try:
                await connection.rcpt(copy.address, encoding=encoding)
            except errors.SMTPRecipientRefused as error:
                if error.code == _CLOSING:
                    raise
                if error.code < _FIRST_PERMANENT and self._wait_for_copies:
                    return Unavailable(self._hide(f"a copy: {error.code} {error.message}"), "copy_refused")
                # A copy that is refused for good must not keep the mail from its recipient.
                refused += 1
        self._data_begun = True
        reply = await connection.data(letter.content)
        without = f"; {refused} of {len(letter.copies)} copies refused" if refused else ""
        return Sent(message_id=self._hide(f"{letter.message_id} {reply.message}{without}")[:_MAX_ERROR])

    def broken(self, error: str, classification: str) -> Outcome:
        """The outcome without a reply: before DATA nothing was sent, afterwards the mail may have been accepted."""
        if self._data_begun:
            return Unknown(error, classification=classification)
        return Unavailable(error, classification=classification)

    def _answered(self, error: errors.SMTPResponseException) -> Outcome:
        code, text = error.code, self._hide(f"{error.code} {error.message}")[:_MAX_ERROR]
        if isinstance(error, errors.SMTPAuthenticationError) or code in _NOT_AUTHENTICATED:
            # The operator can fix the credentials while the mail waits.
            return Unavailable(text, classification="auth_failed")
        if not isinstance(error, _REPLIES) or code < _FIRST_TEMPORARY:
            # A greeting, or the library's code for an answer that is not SMTP: not a reply to this mail.
            return self.broken(text, "protocol_error")
        at_recipient = isinstance(error, errors.SMTPRecipientRefused)
        if code >= _FIRST_PERMANENT:
            # X.7.X is about the sender or the content, not about the mailbox.
            gone = at_recipient and code in _NO_SUCH_MAILBOX and " 5.7." not in f" {error.message}"
            return Refused(text, classification=f"smtp_{code}", recipient_gone=gone)
        classification = "greylisted" if at_recipient and code in _GREYLISTING else f"smtp_{code}"
        return Unavailable(text, classification=classification)


def _drop(connection: aiosmtplib.SMTP, transport: asyncio.BaseTransport | None) -> None:
    connection.close()
    if isinstance(transport, asyncio.WriteTransport):
        # A graceful close would wait for a peer that may never answer.
        transport.abort()


def _kind(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return "tls"
    if isinstance(error, errors.SMTPConnectError):
        return "tls" if isinstance(error.__cause__, ssl.SSLError) else "connect"
    return "connection_lost" if isinstance(error, OSError) else "protocol_error"


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _read_url(secret: Secret) -> _Server:
    # The URL holds the password: no error text may quote it.
    try:
        url = urlsplit(secret.reveal())
        port = url.port
    except ValueError:
        raise ValueError("url: not a URL") from None
    if url.scheme not in {"smtp", "smtps"} or not url.hostname:
        raise ValueError("url: expected smtp://[user:password@]host[:port][?starttls=1] or smtps://…")
    query = parse_qs(url.query)
    starttls = query.pop("starttls", [""])[-1]
    if query or starttls not in {"", "0", "1"}:
        raise ValueError("url: the only option is starttls=1 or starttls=0")
    implicit = url.scheme == "smtps"
    return _Server(
        host=url.hostname,
        port=port or (465 if implicit else 587),
        implicit_tls=implicit,
        starttls=None if not starttls else starttls == "1",
        user=unquote(url.username) if url.username else None,
        password=Secret(unquote(url.password)) if url.password else None,
    )


def create(name: str, settings: Settings, tools: Tools) -> Smtp:
    return Smtp(name, settings, tools.clock)
