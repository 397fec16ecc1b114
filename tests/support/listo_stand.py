"""Everything around a running listo: all five vendors, a database of its own, and the processes."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import jwt
import pytest

from tests.support import acs_stub, sendgrid_stub, sns_stub, tables, twilio_stub
from tests.support.acs_stub import AcsStub
from tests.support.blueprint_stand import BlueprintStand, database
from tests.support.client import Client, Reply
from tests.support.fcm_stub import FcmStub
from tests.support.sendgrid_stub import EventSigner, SendGridStub
from tests.support.sns_stub import SnsStub
from tests.support.twilio_stub import TwilioStub
from tests.support.vendor import Entry
from tests.support.vendor import Reply as VendorReply
from tests.support.waiting import wait_until

PHONE, EMAIL, DEVICE = "+14155550100", "ada@example.com", "device-token-0001"
ADDRESSES = {"sms": PHONE, "email": EMAIL, "push": DEVICE}
SECRET = "listo-test-secret-of-forty-characters-or-more"
FCM_WEBHOOK_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ACS_WEBHOOK_SECRET = "event-grid-brings-this-along"
SCALE = 0.02
"""By default a wait of five seconds takes a tenth of one, and a breaker opens for 1.2 s."""
DOWN = VendorReply(503, body={"message": "down"})
HANGS = VendorReply(hang=True)


class Listo(BlueprintStand):
    """A stand; `start()` runs `carillon serve --blueprint listo` with the launch contract's environment."""

    def __init__(self, folder: Path, url: str, settings: str = "", *, scale: float = SCALE, **environment: str) -> None:
        drill = f"[drill]\ntime_scale = {scale}\n[work]\npoll_seconds = 0.1\n"
        super().__init__(folder, url, "listo", f'extends = "listo"\n{drill}{settings}', environment)
        self.signer = EventSigner()
        self.fcm = FcmStub(folder / "fcm.jsonl")
        self.twilio = TwilioStub(folder / "twilio.jsonl")
        self.sns = SnsStub(folder / "sns.jsonl")
        self.sendgrid = SendGridStub(folder / "sendgrid.jsonl")
        self.acs = AcsStub(folder / "acs.jsonl")

    def __enter__(self) -> Self:
        for stub in (self.fcm, self.twilio, self.sns, self.sendgrid, self.acs):
            self._stack.enter_context(stub)
        return self

    def contract(self) -> dict[str, str]:
        return {
            "TWILIO_BASE_URL": self.twilio.url,
            "TWILIO_ACCOUNT_SID": twilio_stub.ACCOUNT,
            "TWILIO_AUTH_TOKEN": twilio_stub.TOKEN,
            "TWILIO_FROM": twilio_stub.SENDER,
            "AWS_SNS_ENDPOINT_URL": self.sns.url,
            "AWS_REGION": sns_stub.REGION,
            "AWS_ACCESS_KEY_ID": sns_stub.ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": sns_stub.SECRET_KEY,
            "SENDGRID_BASE_URL": self.sendgrid.url,
            "SENDGRID_API_KEY": sendgrid_stub.API_KEY,
            "SENDGRID_WEBHOOK_PUBLIC_KEY": self.signer.public_key,
            "EMAIL_FROM": "bells@carillon.example",
            "ACS_ENDPOINT": self.acs.url,
            "ACS_ACCESS_KEY": acs_stub.ACCESS_KEY,
            "ACS_WEBHOOK_SECRET": ACS_WEBHOOK_SECRET,
            "FCM_BASE_URL": self.fcm.url,
            "FCM_WEBHOOK_SECRET": FCM_WEBHOOK_SECRET,
            "GOOGLE_APPLICATION_CREDENTIALS": self.fcm.key_file(self.folder),
        }

    def add_template(self, key: str, channel: str, text: str, *locales: str) -> None:
        """One more template for processes started from now on; in every supported language if none is named."""
        for locale in locales or ("en-US", "es-MX"):
            folder = self.folder / "templates" / key / locale / channel
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "text.tmpl").write_text(text)
        self._environment["CARILLON_TEMPLATES__FOLDERS"] = f"blueprint:templates,{self.folder / 'templates'}"

    @property
    def address(self) -> str:
        """Where the newest process listens."""
        return str(self.programs[-1].wait_ready()["addresses"][0])

    @property
    def client(self) -> Client:
        return Client(self.address)

    def send(self, key: str = "order_confirmed", channel: str | None = "email", **fields: Any) -> Reply:
        """Send to the channel's usual address; `headers` and fields of the body can be given, None leaves one out."""
        headers = fields.pop("headers", None)
        body = {"templateKey": key, "channel": channel, "recipient": ADDRESSES.get(channel or ""), **fields}
        body = {name: value for name, value in body.items() if value is not None}
        return self.client.call("POST", "/api/v1/notifications/send", body, headers)

    def sent(self, key: str = "order_confirmed", channel: str = "email", **fields: Any) -> str:
        """Send and insist on 202; the notification's id."""
        reply = self.send(key, channel, **fields)
        assert reply.status == 202, reply
        return str(reply.body["notificationId"])

    def story(self, notification_id: str, headers: dict[str, str] | None = None) -> Any:
        return self.client.get(f"/api/v1/notifications/{notification_id}?include=attempts,message", headers).body

    def until(
        self, notification_id: str, status: str, timeout: float = 40, headers: dict[str, str] | None = None
    ) -> Any:
        """The story once it has this status."""

        def there() -> bool:
            return bool(self.story(notification_id, headers)["status"] == status)

        wait_until(there, timeout=timeout, what=f"{notification_id} to be {status}")
        return self.story(notification_id, headers)

    def calls(self, provider: str, holding: str = "") -> list[Entry]:
        """The messages a vendor was asked to send, in order; `holding` chooses those whose request holds a text."""
        stub, mark = {
            "Twilio": (self.twilio, "/Messages.json"),
            "AWS_SNS": (self.sns, "Action=Publish"),
            "SendGrid": (self.sendgrid, "/v3/mail/send"),
            "AZURE_ACS": (self.acs, "/emails:send"),
            "FCM": (self.fcm, "messages:send"),
        }[provider]
        return [
            entry for entry in list(stub.entries) if mark in entry["path"] + entry["body"] and holding in entry["body"]
        ]

    def down(self, times: int) -> None:
        """Every vendor is out of order for so many calls each."""
        for stub in (self.twilio, self.sns, self.sendgrid, self.acs):
            stub.answer(*[DOWN] * times)
        self.fcm.answer(*[DOWN] * times, path="/v1/")

    def up(self) -> None:
        """What vendors were told to answer and did not come to is forgotten."""
        for stub in (self.twilio, self.sns, self.sendgrid, self.acs, self.fcm):
            stub.forget()

    def until_rows(self, statement: str, wanted: Callable[[list[tables.Row]], bool], timeout: float = 40) -> None:
        wait_until(lambda: wanted(self.rows(statement)), timeout=timeout, what=statement)


def token(sub: str = "user-1", *, role: str = "user", tenant: str | None = None, **claims: Any) -> dict[str, str]:
    """The Authorization header of a process that was started with JWT_SECRET_KEY=SECRET."""
    now = int(time.time())
    # Some are made when a file is read: they must outlive the whole run.
    said = {"sub": sub, "role": role, "iat": now, "exp": now + 3500, **claims}
    if tenant is not None:
        said["tenant_id"] = tenant
    return {"Authorization": f"Bearer {jwt.encode(said, SECRET, algorithm='HS256')}"}


def stand_fixture(settings: str = "", *, start: bool = True, scale: float = SCALE, **environment: str) -> Any:
    """Assigned to `listo` in a module, it runs every test on both engines with a stand of the test's own."""

    def listo(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Listo]:
        yield from _stand(request, tmp_path, settings, start=start, scale=scale, environment=environment)

    return pytest.fixture(params=["sqlite", "postgres"], name="listo")(listo)


def shared_fixture(
    settings: str = "", *, scale: float = SCALE, templates: Sequence[tuple[str, str]] = (), **environment: str
) -> Any:
    """The same with one ready process for the whole module, whose tests tell their notifications apart.

    `templates` are keys and channels of further templates.
    """

    def listo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listo]:
        folder = tmp_path_factory.mktemp("listo")
        for stand in _stand(request, folder, settings, start=False, scale=scale, environment=environment):
            for key, channel in templates:
                stand.add_template(key, channel, "A word from us.")
            stand.start()
            yield stand

    return pytest.fixture(params=["sqlite", "postgres"], name="listo", scope="module")(listo)


def _stand(
    request: pytest.FixtureRequest,
    folder: Path,
    settings: str,
    *,
    start: bool,
    scale: float,
    environment: dict[str, str],
) -> Iterator[Listo]:
    for url in database(request, folder):
        with Listo(folder, url, settings, scale=scale, **environment) as stand:
            if start:
                stand.start()
            yield stand
