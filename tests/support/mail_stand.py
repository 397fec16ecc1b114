"""Emails over three providers in one chain, with a server of files, on either engine."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from tests.support import acs_stub, sendgrid_stub
from tests.support.acs_stub import AcsStub
from tests.support.blueprint_stand import BlueprintStand, database
from tests.support.client import Client, Reply
from tests.support.sendgrid_stub import EventSigner, SendGridStub
from tests.support.smtp import SmtpServer
from tests.support.vendor import Vendor
from tests.support.waiting import wait_until

ADA = "ada@example.com"
CHAIN = ("smtp", "sendgrid", "acs")
_SETTINGS = """
extends = "local"
[drill]
time_scale = 0.01
[work]
poll_seconds = 0.05
[http]
max_body_bytes = 4_000_000
[channels]
email = {chain}
[providers.sendgrid]
kind = "sendgrid"
[providers.acs]
kind = "acs"
[mail]
attachment_bytes = 1_000_000
allow_http = true
allow_networks = ["127.0.0.0/8"]
allow_ports = ["1024-65535"]
[policy.retry."*/email"]
max_attempts = 9
failover_after_attempts = 2
on_refused = "fail_over"
[policy.breaker."*"]
failure_threshold = 1000
"""


class MailStand(BlueprintStand):
    """`start()` runs `carillon serve`; the first provider of the chain is tried first."""

    def __init__(self, folder: Path, url: str, settings: str = "", chain: tuple[str, ...] = CHAIN) -> None:
        text = _SETTINGS.replace("{chain}", str(list(chain)).replace("'", '"'))
        super().__init__(folder, url, "mail", text + settings, {})
        self.smtp = SmtpServer(tls=False, credentials=None)
        self.sendgrid = SendGridStub(folder / "sendgrid.jsonl")
        self.acs = AcsStub(folder / "acs.jsonl")
        self.files = Vendor(folder / "files.jsonl")
        self.signer = EventSigner()

    def __enter__(self) -> Self:
        for stub in (self.smtp, self.sendgrid, self.acs, self.files):
            self._stack.enter_context(stub)
        return self

    def contract(self) -> dict[str, str]:
        prefix = "CARILLON_PROVIDERS__"
        return {
            "SMTP_URL": self.smtp.url,
            "EMAIL_FROM": "Bells <bells@carillon.example>",
            f"{prefix}SENDGRID__BASE_URL": self.sendgrid.url,
            f"{prefix}SENDGRID__API_KEY": sendgrid_stub.API_KEY,
            f"{prefix}SENDGRID__SENDER": "Bells <bells@carillon.example>",
            f"{prefix}SENDGRID__WEBHOOK_PUBLIC_KEY": self.signer.public_key,
            f"{prefix}ACS__ENDPOINT": self.acs.url,
            f"{prefix}ACS__ACCESS_KEY": acs_stub.ACCESS_KEY,
            f"{prefix}ACS__SENDER": "bells@carillon.example",
        }

    @property
    def client(self) -> Client:
        return Client.of(self.programs[-1])

    def template(self, key: str, **fields: Any) -> None:
        body = {
            "templateKey": key,
            "channel": "email",
            "subjectTemplate": "Order {{number}}",
            "bodyTemplate": "Thank you for order {{number}}.",
            "htmlTemplate": '<p>Thank you.</p><img src="cid:logo.png">',
            **fields,
        }
        made = self.client.call("POST", "/api/v1/templates", body)
        assert made.status == 201, made

    def send(self, key: str = "order", **fields: Any) -> Reply:
        body = {"templateKey": key, "channel": "email", "recipient": ADA, "data": {"number": "7"}, **fields}
        headers = body.pop("http", None)
        return self.client.call("POST", "/api/v1/notifications/send", body, headers)

    def sent(self, key: str = "order", **fields: Any) -> str:
        reply = self.send(key, **fields)
        assert reply.status == 202, reply
        return str(reply.body["notificationId"])

    def story(self, notification_id: str) -> Any:
        return self.client.call("GET", f"/api/v1/notifications/{notification_id}?include=attempts,message").body

    def until(self, notification_id: str, status: str, timeout: float = 40) -> Any:
        wait_until(
            lambda: self.story(notification_id)["status"] == status,
            timeout=timeout,
            what=f"{notification_id} to be {status}",
        )
        return self.story(notification_id)


def stand_fixture(settings: str = "", chain: tuple[str, ...] = CHAIN) -> Any:
    """Assigned to `stand` in a module: one ready process on each engine, with the template `order`."""

    def stand(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MailStand]:
        folder = tmp_path_factory.mktemp("mail")
        for url in database(request, folder):
            with MailStand(folder, url, settings, chain) as ready:
                ready.start()
                ready.template("order")
                yield ready

    return pytest.fixture(params=["sqlite", "postgres"], name="stand", scope="module")(stand)
