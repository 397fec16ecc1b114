"""Servers that speak Amazon SNS's wire: a strict one that checks signatures, and moto."""

import hashlib
import hmac
import json
import re
import socket
import sys
import uuid
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from tests.support.daemon import Daemon
from tests.support.ports import free_port
from tests.support.vendor import Entry, Reply, Vendor

ACCESS_KEY = "AKIAIOSFODNN7EXAMPLE"
SECRET_KEY = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
REGION = "eu-west-1"
RECIPIENT = "+14155550100"

_SPACE = "http://sns.amazonaws.com/doc/2010-03-31/"
_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/]+)/(?P<scope>(?P<day>\d{8})/(?P<region>[^/]+)/(?P<name>\w+)/aws4_request)"
    r", SignedHeaders=(?P<signed>[\w;-]+), Signature=(?P<signature>[0-9a-f]{64})"
)
_STATUSES = {"InternalError": 500, "InternalFailure": 500, "ServiceUnavailable": 503, "Throttled": 429}
_FORBIDDEN = {"AuthorizationError", "SignatureDoesNotMatch", "InvalidClientTokenId", "InvalidSecurity", "ExpiredToken"}


def options_for(port: int) -> dict[str, Any]:
    """Settings of a provider that talks to that port."""
    url = f"http://127.0.0.1:{port}"
    return {"endpoint_url": url, "region": REGION, "access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY}


def error(code: str, message: str = "as documented", **headers: str) -> Reply:
    """An error in SNS's shape, with the status it is documented with."""
    status = 403 if code in _FORBIDDEN else _STATUSES.get(code, 400)
    kind = "Receiver" if status >= 500 else "Sender"
    body = (
        f'<ErrorResponse xmlns="{_SPACE}"><Error><Type>{kind}</Type><Code>{code}</Code>'
        f"<Message>{escape(message)}</Message></Error><RequestId>{uuid.UUID(int=7)}</RequestId></ErrorResponse>"
    )
    return Reply(status, {"Content-Type": "text/xml"} | {k.replace("_", "-"): v for k, v in headers.items()}, body)


class SnsStub(Vendor):
    """Takes messages whose signature holds; `messages` are those it took, by id."""

    def __init__(self, ledger: Path, *, access_key: str = ACCESS_KEY, secret_key: str = SECRET_KEY) -> None:
        super().__init__(ledger)
        self.messages: dict[str, dict[str, str]] = {}
        self.opted_out: set[str] = set()
        self.default = self._speak
        self._access_key = access_key
        self._secret_key = secret_key

    def _speak(self, entry: Entry) -> Reply:
        wrong = self._distrust(entry)
        if wrong is not None:
            return wrong
        form = dict(parse_qsl(entry["body"], keep_blank_values=True))
        if form.get("Version") != "2010-03-31":
            return error("InvalidParameter", "Version")
        match form["Action"]:
            case "Publish":
                return self._publish(form)
            case "GetSMSAttributes":
                return _answer("GetSMSAttributes", "<attributes/>")
            case _:
                return error("InvalidAction")

    def _publish(self, form: dict[str, str]) -> Reply:
        number = form.get("PhoneNumber", "")
        if not re.fullmatch(r"\+[1-9]\d{6,14}", number):
            return error(
                "InvalidParameter", f"Invalid parameter: PhoneNumber Reason: {number} is not valid to publish to"
            )
        if number in self.opted_out:
            return error("OptedOut", "This phone number has opted out")
        if not form.get("Message"):
            return error("InvalidParameter", "Invalid parameter: Empty message")
        message_id = str(uuid.UUID(int=len(self.messages)))
        self.messages[message_id] = form
        return _answer("Publish", f"<MessageId>{message_id}</MessageId>")

    def _distrust(self, entry: Entry) -> Reply | None:
        headers = entry["headers"]
        parts = _AUTHORIZATION.fullmatch(headers.get("authorization", ""))
        if parts is None:
            return error("IncompleteSignature")
        if parts["key"] != self._access_key:
            return error("InvalidClientTokenId", "The security token included in the request is invalid.")
        signed = parts["signed"].split(";")
        stamp = headers.get("x-amz-date", "")
        canonical = [entry["method"], entry["path"], "", *(f"{name}:{headers[name].strip()}" for name in signed)]
        canonical += ["", parts["signed"], hashlib.sha256(entry["body"].encode()).hexdigest()]
        digest = hashlib.sha256("\n".join(canonical).encode()).hexdigest()
        key = f"AWS4{self._secret_key}".encode()
        for word in parts["scope"].split("/"):
            key = hmac.digest(key, word.encode(), "sha256")
        text = "\n".join(["AWS4-HMAC-SHA256", stamp, parts["scope"], digest])
        holds = hmac.digest(key, text.encode(), "sha256").hex() == parts["signature"]
        covers = {"host", "x-amz-date", "content-type"} <= set(signed) and stamp.startswith(parts["day"])
        if not holds or not covers or parts["name"] != "sns":
            return error("SignatureDoesNotMatch", "The request signature we calculated does not match")
        return None


def _answer(action: str, content: str) -> Reply:
    body = (
        f'<{action}Response xmlns="{_SPACE}"><{action}Result>{content}</{action}Result><ResponseMetadata>'
        f"<RequestId>{uuid.UUID(int=7)}</RequestId></ResponseMetadata></{action}Response>"
    )
    return Reply(200, {"Content-Type": "text/xml"}, body)


class Moto(Daemon):
    """moto's server, which checks no signatures and remembers what it was told."""

    def __init__(self) -> None:
        super().__init__("moto")
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]

    def is_up(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True
        except OSError:
            return False

    def texts(self) -> list[dict[str, Any]]:
        """The text messages it took."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request("GET", "/moto-api/data.json")
        content = json.loads(connection.getresponse().read())
        connection.close()
        return list(content.get("sns", {}).get("SMS", []))
