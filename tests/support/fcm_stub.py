"""FCM and Google's token endpoint as far as Carillon speaks to them: they check and answer as Google does."""

import asyncio
import functools
import itertools
import json
import re
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.support.peers import Behaviour, read_request
from tests.support.vendor import Entry, Reply, Vendor

RECORDED = Path(__file__).with_name("fcm_recorded.json")
PROJECT = "carillon-test"
EMAIL = "worker@carillon-test.iam.gserviceaccount.com"
SERVER_KEY = "AAAA0000:stub-server-key"
SCOPE = "https://www.googleapis.com/auth/firebase.messaging"
_FCM_ERROR = "type.googleapis.com/google.firebase.fcm.v1.FcmError"
_BAD_REQUEST = "type.googleapis.com/google.rpc.BadRequest"
_DEVICE = re.compile(r"[A-Za-z0-9_:-]{10,}")
STATUSES = {
    "UNREGISTERED": (404, "NOT_FOUND", "Requested entity was not found."),
    "INVALID_ARGUMENT": (400, "INVALID_ARGUMENT", "The registration token is not a valid FCM registration token"),
    "SENDER_ID_MISMATCH": (403, "PERMISSION_DENIED", "SenderId mismatch"),
    "QUOTA_EXCEEDED": (429, "RESOURCE_EXHAUSTED", "Quota exceeded for quota metric"),
    "UNAVAILABLE": (503, "UNAVAILABLE", "The service is currently unavailable."),
    "INTERNAL": (500, "INTERNAL", "Internal error encountered."),
    "THIRD_PARTY_AUTH_ERROR": (401, "UNAUTHENTICATED", "Auth error from APNS or Web Push Service"),
}


class FcmStub(Vendor):
    """`live` holds the access tokens it will take; `devices` what single registration tokens get for an answer."""

    def __init__(self, ledger: Path) -> None:
        super().__init__(ledger)
        self.default = self._serve
        self.live: set[str] = set()
        self.devices: dict[str, Reply] = {}
        self.token_seconds = 3599
        self.now: float | None = None
        """The time by which assertions are judged; None is the real one."""
        self._numbers = itertools.count(1)
        self._tokens = itertools.count(1)

    @property
    def token_uri(self) -> str:
        return f"{self.url}/token"

    @property
    def sends(self) -> list[Entry]:
        return [entry for entry in self.entries if entry["path"] != "/token"]

    @property
    def token_requests(self) -> list[Entry]:
        return [entry for entry in self.entries if entry["path"] == "/token"]

    def key_file(self, folder: Path, **changes: Any) -> str:
        path = folder / "service-account.json"
        path.write_text(json.dumps(service_account(self.token_uri) | changes))
        return str(path)

    def _serve(self, entry: Entry) -> Reply:
        # Google's generated clients ask for JSON by `?alt=json`.
        match entry["method"], entry["path"].partition("?")[0]:
            case "POST", "/token":
                return self._grant(entry)
            case "POST", path if path == f"/v1/projects/{PROJECT}/messages:send":
                return self._take(entry)
            case "POST", "/fcm/send":
                return self._take_legacy(entry)
            case _:
                return Reply(404, body=b"<html>Not Found</html>")

    def _grant(self, entry: Entry) -> Reply:
        form = dict(parse_qsl(entry["body"]))
        if form.get("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer":
            return Reply(400, body={"error": "unsupported_grant_type"})
        wrong = self._wrong_with(form.get("assertion", ""))
        if wrong is not None:
            return Reply(400, body={"error": "invalid_grant", "error_description": wrong})
        token = f"ya29.stub-{next(self._tokens)}"
        self.live.add(token)
        return Reply(body={"access_token": token, "expires_in": self.token_seconds, "token_type": "Bearer"})

    def _wrong_with(self, assertion: str) -> str | None:
        try:
            claims = jwt.decode(
                assertion,
                private_key().public_key(),
                algorithms=["RS256"],
                audience="https://oauth2.googleapis.com/token",
                options={"verify_exp": self.now is None, "verify_iat": self.now is None, "require": ["iat", "exp"]},
            )
        except jwt.InvalidTokenError as error:
            return f"Invalid JWT: {error}"
        if claims["exp"] - claims["iat"] > 3600 or (self.now is not None and abs(claims["iat"] - self.now) > 300):
            return "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe."
        if claims.get("iss") != EMAIL or not set(recorded()["scopes"]) & set(claims.get("scope", "").split()):
            return "Invalid grant: account not found"
        return None

    def _take(self, entry: Entry) -> Reply:
        if entry["headers"].get("authorization", "").removeprefix("Bearer ") not in self.live:
            return error(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.")
        if not entry["headers"].get("content-type", "").startswith("application/json"):
            return error(400, "INVALID_ARGUMENT", "Invalid JSON payload received.")
        request = json.loads(entry["body"])
        wrong = list(mistakes(request, "SendMessageRequest", ""))
        if wrong:
            return error(400, "INVALID_ARGUMENT", wrong[0], fields=wrong)
        device = request["message"].get("token", "")
        if device in self.devices:
            return self.devices[device]
        if not _DEVICE.fullmatch(device) or device.startswith("probe"):
            return fcm_error("INVALID_ARGUMENT")
        return Reply(body={"name": f"projects/{PROJECT}/messages/0:{1_500_000_000 + next(self._numbers)}%31bd1c96"})

    def _take_legacy(self, entry: Entry) -> Reply:
        if entry["headers"].get("authorization") != f"key={SERVER_KEY}":
            return Reply(401, {"Content-Type": "text/html"}, "<HTML><TITLE>Unauthorized</TITLE>Error 401</HTML>")
        content = json.loads(entry["body"])
        if not content.get("to"):
            return Reply(400, {"Content-Type": "text/plain"}, "Error=MissingRegistration")
        if content["to"] in self.devices:
            return self.devices[content["to"]]
        if not _DEVICE.fullmatch(content["to"]) or content["to"].startswith("probe"):
            return legacy(error="InvalidRegistration")
        return legacy(message_id=f"0:{1_500_000_000 + next(self._numbers)}%31bd1c96")


def error(status: int, word: str, message: str, *, code: str | None = None, fields: list[str] | None = None) -> Reply:
    details: list[dict[str, Any]] = []
    if code is not None:
        details.append({"@type": _FCM_ERROR, "errorCode": code})
    if fields is not None:
        violations = [{"field": field, "description": message} for field in fields]
        details.append({"@type": _BAD_REQUEST, "fieldViolations": violations})
    return Reply(status, body={"error": {"code": status, "message": message, "status": word, "details": details}})


def fcm_error(code: str, *, message: str | None = None, fields: list[str] | None = None) -> Reply:
    status, word, usual = STATUSES[code]
    return error(status, word, message or usual, code=code, fields=fields)


def legacy(**result: str) -> Reply:
    failed = "error" in result
    return Reply(
        body={
            "multicast_id": 216,
            "success": int(not failed),
            "failure": int(failed),
            "canonical_ids": 0,
            "results": [result],
        }
    )


def mistakes(value: Any, name: str, path: str) -> list[str]:
    """The fields that Google's own description of its API does not allow."""
    if not isinstance(value, dict):
        return [path]
    found: list[str] = []
    known = recorded()["schema"][name]
    for key, inner in value.items():
        here = f"{path}.{key}".lstrip(".")
        kind = known.get(_camel(key))
        if kind is None:
            found.append(here)
        elif kind.startswith("ref:"):
            found += mistakes(inner, kind.removeprefix("ref:"), here)
        elif kind == "map:string":
            found += [f"{here}[{each}].value" for each, text in inner.items() if not isinstance(text, str)]
        elif kind in _TYPES and not isinstance(inner, _TYPES[kind]):
            found.append(here)
    return found


_TYPES: dict[str, type | tuple[type, ...]] = {"string": str, "boolean": bool, "integer": int, "number": (int, float)}


def _camel(name: str) -> str:
    # Google takes both the names of its documents and those of its JSON.
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


@functools.cache
def recorded() -> dict[str, Any]:
    """What Google's own libraries were seen to send; `python -m scripts.record_fcm` writes it."""
    found: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


@functools.cache
def private_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def service_account(token_uri: str) -> dict[str, Any]:
    pem = private_key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return {
        "type": "service_account",
        "project_id": PROJECT,
        "private_key_id": "0123456789abcdef",
        "private_key": pem,
        "client_email": EMAIL,
        "client_id": "1",
        "token_uri": token_uri,
    }


def willing(heard: list[bytes]) -> Behaviour:
    """A bare peer that gives a token to everybody and takes every message."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            request = await read_request(reader)
            if not request.startswith(b"POST /token "):
                heard.append(request)
            body = b'{"access_token":"ya29.x","expires_in":3599}'
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    return behave


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="carillon-fcm-")


def options_for(port: int) -> dict[str, Any]:
    """Settings that find both the token endpoint and FCM at one port of this machine."""
    path = Path(_folder().name) / f"{port}.json"
    path.write_text(json.dumps(service_account(f"http://127.0.0.1:{port}/token")))
    return {"base_url": f"http://127.0.0.1:{port}", "credentials_file": str(path), "replace_repeats": True}


def tag_in(request: bytes) -> str:
    return str(json.loads(request.partition(b"\r\n\r\n")[2])["message"]["android"]["notification"]["tag"])
