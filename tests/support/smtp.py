"""An SMTP server with STARTTLS, AUTH and programmable answers that keeps what it was sent."""

import asyncio
import ssl
import tempfile
import threading
from collections import defaultdict, deque
from dataclasses import dataclass
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default as default_policy
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import trustme
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from tests.support.ports import free_port


@dataclass(frozen=True)
class Mail:
    sender: str
    recipients: tuple[str, ...]
    content: bytes
    user: str | None
    encrypted: bool

    def parsed(self) -> EmailMessage:
        return BytesParser(policy=default_policy).parsebytes(self.content)


class SmtpServer:
    """Runs in its own thread; answers 250 unless told otherwise for a recipient or for DATA."""

    def __init__(self, *, tls: bool = True, credentials: tuple[str, str] | None = ("ringer", "rope")) -> None:
        self.tls = tls
        self.credentials = credentials
        self.port = free_port()
        self.mails: list[Mail] = []
        self.refused: list[Mail] = []
        """Mails that came with DATA and were not taken."""
        self.recipients_seen: list[str] = []
        self.data_seconds = 0.0
        """How long the server takes to answer DATA."""
        self._rcpt: defaultdict[str, deque[str]] = defaultdict(deque)
        self._data: deque[str] = deque()
        self._arrived = threading.Condition()
        self._folder = tempfile.TemporaryDirectory(prefix="cn-smtp-")
        self.ca_file = Path(self._folder.name) / "ca.pem"
        self._controller = Controller(self, hostname="127.0.0.1", port=self.port, **self._options())

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"enable_SMTPUTF8": True, "server_hostname": "smtp.test", "ready_timeout": 60.0}
        if self.tls:
            authority = trustme.CA()
            authority.cert_pem.write_to_path(str(self.ca_file))
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
            options |= {"tls_context": context, "require_starttls": True}
        if self.credentials is not None:
            options |= {"authenticator": self._authenticate, "auth_required": True, "auth_require_tls": self.tls}
        return options

    def __enter__(self) -> Self:
        self._controller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._controller.stop()
        self._folder.cleanup()

    @property
    def url(self) -> str:
        user = ":".join(quote(part, safe="") for part in self.credentials) + "@" if self.credentials else ""
        return f"smtp://{user}127.0.0.1:{self.port}{'?starttls=1' if self.tls else ''}"

    def answer_recipient(self, recipient: str, *replies: str) -> None:
        """Give the next RCPT TO commands for this recipient these replies, e.g. "451 4.3.0 later"."""
        self._rcpt[recipient.lower()].extend(replies)

    def answer_data(self, *replies: str) -> None:
        """Give the next messages these replies; only a 2xx keeps the mail."""
        self._data.extend(replies)

    def wait_for(self, number: int, timeout: float = 20) -> list[Mail]:
        with self._arrived:
            if not self._arrived.wait_for(lambda: len(self.mails) >= number, timeout):
                raise TimeoutError(f"{len(self.mails)} of {number} mails arrived within {timeout} s")
            return list(self.mails)

    async def until(self, number: int, timeout: float = 20) -> list[Mail]:  # noqa: ASYNC109 - mirrors wait_for
        return await asyncio.to_thread(self.wait_for, number, timeout)

    def _authenticate(
        self, _server: SMTP, _session: Session, _envelope: Envelope, _mechanism: str, auth: object
    ) -> AuthResult:
        if not isinstance(auth, LoginPassword) or self.credentials is None:
            return AuthResult(success=False, handled=False)
        given = (auth.login.decode(), auth.password.decode())
        return AuthResult(success=given == self.credentials, auth_data=given[0], handled=False)

    # aiosmtpd finds these two by name.
    async def handle_RCPT(  # noqa: N802
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, rcpt_options: list[str]
    ) -> str:
        self.recipients_seen.append(address)
        replies = self._rcpt.get(address.lower())
        reply = replies.popleft() if replies else "250 2.1.5 OK"
        if reply.startswith("2"):
            envelope.rcpt_tos.append(address)
            envelope.rcpt_options.extend(rcpt_options)
        return reply

    async def handle_DATA(self, _server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        await asyncio.sleep(self.data_seconds)
        reply = self._data.popleft() if self._data else "250 2.0.0 OK"
        content = envelope.content if isinstance(envelope.content, bytes) else str(envelope.content).encode()
        user = str(session.auth_data) if session.authenticated else None
        mail = Mail(
            envelope.mail_from or "", tuple(envelope.rcpt_tos), content, user, encrypted=session.ssl is not None
        )
        with self._arrived:
            (self.mails if reply.startswith("2") else self.refused).append(mail)
            self._arrived.notify_all()
        return reply
