"""A server that speaks Twilio's wire: it checks what a message needs, answers as documented and signs its reports."""

import base64
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode

from twilio.request_validator import RequestValidator

from tests.support.vendor import Entry, Reply, Vendor

ACCOUNT = "AC0123456789abcdef0123456789abcdef"
TOKEN = "0123456789abcdef-token"
SENDER = "+15005550006"
RECIPIENT = "+14155550100"

_PATH = re.compile(r"/2010-04-01/Accounts/(?P<account>\w+)(?P<messages>/Messages)?\.json")
# Twilio's own test numbers, each of which always meets the same fate.
_TO = {
    "+15005550001": 21211,
    "+15005550002": 21612,
    "+15005550003": 21408,
    "+15005550004": 21610,
    "+15005550009": 21614,
}
_FROM = {"+15005550001": 21212, "+15005550007": 21606, "+15005550008": 21611}
_STATUSES = {14107: 429, 20003: 401, 20005: 403, 20404: 404, 20429: 429, 20500: 500, 20503: 503}


def options_for(port: int) -> dict[str, Any]:
    """Settings of a provider that talks to that port and carries its messages' ids."""
    callback = {"status_callback": "https://notify.example/in", "callback_key": "message"}
    url = f"http://127.0.0.1:{port}"
    return {"base_url": url, "account_sid": ACCOUNT, "auth_token": TOKEN, "sender": SENDER, **callback}


def callback_in(request: bytes) -> str:
    """The callback that a request asks for."""
    return parse_qs(request.partition(b"\r\n\r\n")[2].decode())["StatusCallback"][0]


def error(code: int, message: str = "as documented", **headers: str) -> Reply:
    """An error in Twilio's shape, with the status it is documented with."""
    status = _STATUSES.get(code, 400)
    info = f"https://www.twilio.com/docs/errors/{code}"
    content = {"code": code, "message": message, "more_info": info, "status": status}
    return Reply(status, {name.replace("_", "-"): value for name, value in headers.items()}, content)


def signed(url: str, fields: dict[str, Any], token: str = TOKEN) -> tuple[dict[str, str], bytes]:
    """Headers and body of a report as Twilio posts it: a form, signed by Twilio's own code."""
    pairs = [(name, one) for name, value in fields.items() for one in (value if isinstance(value, list) else [value])]
    body = urlencode(pairs).encode()
    return {
        "content-type": "application/x-www-form-urlencoded; charset=UTF-8",
        "x-twilio-signature": RequestValidator(token).compute_signature(url, Form(body)),
    }, body


def signed_json(url: str, fields: dict[str, Any], token: str = TOKEN) -> tuple[str, dict[str, str], bytes]:
    """URL, headers and body of a JSON report, whose URL carries the digest of its body."""
    validator = RequestValidator(token)
    body = json.dumps(fields)
    url += f"{'&' if '?' in url else '?'}bodySHA256={validator.compute_hash(body)}"
    headers = {"content-type": "application/json", "x-twilio-signature": validator.compute_signature(url, {})}
    return url, headers, body.encode()


class Form(dict[str, list[str]]):
    """A form as web frameworks hand it to Twilio's own code."""

    def __init__(self, body: bytes) -> None:
        super().__init__(parse_qs(body.decode(), keep_blank_values=True))

    def getlist(self, name: str) -> list[str]:
        return self[name]


class TwilioStub(Vendor):
    """Takes messages for one account; `messages` are those it took, by sid."""

    def __init__(self, ledger: Path, *, account: str = ACCOUNT, token: str = TOKEN) -> None:
        super().__init__(ledger)
        self.account_status = "active"
        self.messages: dict[str, dict[str, str]] = {}
        self.default = self._speak
        self._account = account
        self._authorization = f"Basic {base64.b64encode(f'{account}:{token}'.encode()).decode()}"

    def _speak(self, entry: Entry) -> Reply:
        path = _PATH.fullmatch(entry["path"])
        if path is None:
            return error(20404)
        if entry["headers"].get("authorization") != self._authorization or path["account"] != self._account:
            return error(20003, "Authenticate")
        if path["messages"] is None:
            return Reply(200, body={"sid": self._account, "status": self.account_status, "type": "Full"})
        return self._take(entry) if entry["method"] == "POST" else error(20404)

    def _take(self, entry: Entry) -> Reply:
        if entry["headers"].get("content-type") != "application/x-www-form-urlencoded":
            return error(21604, "A 'To' phone number is required.")
        form = dict(parse_qsl(entry["body"], keep_blank_values=True))
        wrong = _what_is_wrong(form)
        if wrong is not None:
            return error(*wrong)
        sid = f"SM{len(self.messages):032x}"
        self.messages[sid] = form
        return Reply(201, body=_message(sid, self._account, form))


def _what_is_wrong(form: dict[str, str]) -> tuple[int, str] | None:
    to, sender = form.get("To", ""), form.get("From", "")
    if not to:
        return 21604, "A 'To' phone number is required."
    if not form.get("Body"):
        return 21602, "Message body is required."
    if not sender and not form.get("MessagingServiceSid"):
        return 21603, "A 'From' phone number is required."
    code = _TO.get(to) or _FROM.get(sender)
    if code is None and not re.fullmatch(r"\+[1-9]\d{1,14}", to):
        code = 21211
    return None if code is None else (code, f"{to} or {sender} will not do")


def _message(sid: str, account: str, form: dict[str, str]) -> dict[str, Any]:
    return {
        "sid": sid,
        "account_sid": account,
        "to": form["To"],
        "from": form.get("From"),
        "messaging_service_sid": form.get("MessagingServiceSid"),
        "body": form["Body"],
        "status": "queued",
        "direction": "outbound-api",
        "num_segments": "1",
        "num_media": "0",
        "error_code": None,
        "error_message": None,
        "date_created": "Tue, 14 Nov 2023 22:15:00 +0000",
        "uri": f"/2010-04-01/Accounts/{account}/Messages/{sid}.json",
    }
