"""Write down what Google's own libraries send to FCM, and the shape of its messages by Google's own description.

Needs the dependency group `oracles`, which nothing else does: `python -m scripts.record_fcm`.
"""

import base64
import importlib.metadata
import json
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import firebase_admin
from firebase_admin import credentials, messaging
from google.oauth2 import service_account
from googleapiclient.discovery import build

from tests.support.fcm_stub import PROJECT, RECORDED, SCOPE, FcmStub
from tests.support.fcm_stub import service_account as key_file
from tests.support.vendor import Entry

DEVICE = "fcm_device_token_xyz123"
TITLE, BODY = "Welcome John Doe!", "Welcome John Doe! Visit: https://example.com/welcome"
DATA = {"trace_id": "a3f5b9c1-2d4e-4a5f-9b2c-7e8d9f1a2b3c", "link": "https://example.com/welcome"}
TAG = "0f" * 32


def main() -> None:
    recorded: dict[str, Any] = {
        "versions": {
            name: importlib.metadata.version(name)
            for name in ("firebase-admin", "google-api-python-client", "google-auth")
        },
        **shape(),
    }
    # The stub checks by this shape, so it comes first.
    RECORDED.write_text(json.dumps(recorded))
    with tempfile.TemporaryDirectory() as folder, FcmStub(Path(folder) / "sdk.jsonl") as stub:
        recorded["sends"] = {"firebase-admin": by_firebase(stub)}
        recorded["token_request"] = token_request(stub.token_requests[0])
        recorded["sends"]["google-api-python-client"] = by_api_client(stub)
    RECORDED.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")
    print(f"{RECORDED.name}: {len(recorded['schema'])} shapes, {sum(map(len, recorded['sends'].values()))} messages")


def shape() -> dict[str, Any]:
    """Names and types only, of everything a message can hold."""
    text = files("googleapiclient.discovery_cache").joinpath("documents/fcm.v1.json").read_text(encoding="utf-8")
    document = json.loads(text)
    found: dict[str, dict[str, str]] = {}
    waiting = ["SendMessageRequest"]
    while waiting:
        name = waiting.pop()
        properties = document["schemas"][name].get("properties", {})
        found[name] = {key: kind(value) for key, value in properties.items()}
        waiting += [
            word.removeprefix("ref:")
            for word in found[name].values()
            if word.startswith("ref:") and word[4:] not in found
        ]
    send = document["resources"]["projects"]["resources"]["messages"]["methods"]["send"]
    return {
        "revision": document["revision"],
        "schema": found,
        "method": send["httpMethod"],
        "path": send["path"],
        "scopes": send["scopes"],
    }


def kind(value: dict[str, Any]) -> str:
    if "$ref" in value:
        return f"ref:{value['$ref']}"
    if value["type"] == "object":
        return f"map:{value['additionalProperties']['type']}"
    return str(value["type"])


def by_firebase(stub: FcmStub) -> dict[str, Any]:
    app = firebase_admin.initialize_app(credentials.Certificate(key_file(stub.token_uri)))
    messaging._get_messaging_service(app)._fcm_url = f"{stub.url}/v1/projects/{PROJECT}/messages:send"  # noqa: SLF001 - it has no option for it
    shown = messaging.Notification(title=TITLE, body=BODY)
    messages = {
        "seed": messaging.Message(token=DEVICE, notification=shown, data=DATA),
        "untitled": messaging.Message(token=DEVICE, notification=messaging.Notification(body=BODY)),
        "tagged": messaging.Message(
            token=DEVICE,
            notification=shown,
            data=DATA,
            android=messaging.AndroidConfig(notification=messaging.AndroidNotification(tag=TAG)),
            apns=messaging.APNSConfig(headers={"apns-collapse-id": TAG}),
            webpush=messaging.WebpushConfig(notification=messaging.WebpushNotification(tag=TAG)),
        ),
    }
    found = {}
    for name, message in messages.items():
        answer = messaging.send(message, app=app)
        found[name] = seen(stub.sends[-1]) | {"answer": answer.rpartition("/")[0]}
    return found


def by_api_client(stub: FcmStub) -> dict[str, Any]:
    account = service_account.Credentials.from_service_account_info(  # type: ignore[no-untyped-call]
        key_file(stub.token_uri), scopes=[SCOPE]
    )
    service = build("fcm", "v1", credentials=account, static_discovery=True, client_options={"api_endpoint": stub.url})
    message = {"token": DEVICE, "notification": {"title": TITLE, "body": BODY}, "data": DATA}
    service.projects().messages().send(parent=f"projects/{PROJECT}", body={"message": message}).execute()
    return {"seed": seen(stub.sends[-1])}


def seen(entry: Entry) -> dict[str, Any]:
    assert entry["status"] == 200, entry  # noqa: PLR2004, S101 - a refused message proves nothing
    return {
        "method": entry["method"],
        "path": entry["path"],
        "content_type": entry["headers"]["content-type"],
        "authorization": entry["headers"]["authorization"].split(".")[0],
        "body": json.loads(entry["body"]),
    }


def token_request(entry: Entry) -> dict[str, Any]:
    form = dict(parse_qsl(entry["body"]))
    header, claims = (json.loads(base64.urlsafe_b64decode(part + "==")) for part in form["assertion"].split(".")[:2])
    return {
        "content_type": entry["headers"]["content-type"],
        "fields": sorted(form),
        "grant_type": form["grant_type"],
        "header": header,
        "lifetime": claims.pop("exp") - claims.pop("iat"),
        "claims": claims,
    }


if __name__ == "__main__":
    main()
