"""FCM's settings: what is chosen, what is refused at the start, what is said and what never shows."""

import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from carillon.domain.errors import ConfigurationError
from carillon.providers import load
from carillon.providers.fcm.send import Settings, remarks
from carillon.providers.fcm.token import read_account
from carillon.providers.http import HttpClient
from carillon.providers.tools import Secret
from tests.support.dispatches import tools
from tests.support.fcm_stub import SERVER_KEY, service_account

PEM = service_account("https://oauth2.googleapis.com/token")["private_key"]
EC_PEM = (
    ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
)


def key_file(folder: Path, content: str | None = None, **changes: Any) -> str:
    path = folder / "key.json"
    account = service_account("https://oauth2.googleapis.com/token") | changes
    path.write_text(content if content is not None else json.dumps(account))
    return str(path)


def start(**options: Any) -> Any:
    return load("fcm", "fcm", options, tools(HttpClient()))


@pytest.mark.req("S0-36")
def test_the_form_follows_from_what_is_given(tmp_path: Path) -> None:
    assert Settings(credentials_file="x").form == "v1"
    assert Settings(project_id="x", server_key=Secret("k")).form == "v1"
    assert Settings(server_key=Secret("k")).form == "legacy"
    assert Settings(api="legacy", credentials_file="x").form == "legacy"
    start(credentials_file=key_file(tmp_path))
    start(credentials_file=key_file(tmp_path, project_id=""), project_id="example.com:named-here")


@pytest.mark.req("P-960")
def test_a_key_is_parsed_once_and_a_changed_file_is_read_anew(tmp_path: Path) -> None:
    """A start of listo reads the file four times, and to parse a key takes 50 ms."""
    one, again = (read_account(key_file(tmp_path)) for _ in range(2))
    assert one.signer is again.signer
    other = rsa.generate_private_key(65537, 2048)
    pem = other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    changed = read_account(key_file(tmp_path, private_key=pem))
    jwt.decode(
        changed.assertion("scope", int(time.time())),
        other.public_key(),
        algorithms=["RS256"],
        audience="https://oauth2.googleapis.com/token",
    )
    assert read_account(key_file(tmp_path, private_key_id="another")).signer.key_id == "another"


def test_the_legacy_form_to_google_is_remarked_upon() -> None:
    [remark] = remarks(Settings(server_key=Secret("k")))
    assert "legacy" in remark
    assert not remarks(Settings(server_key=Secret("k"), base_url="https://relay.example"))
    assert not remarks(Settings(project_id="x"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "providers.fcm: server_key: "),
        ({"server_key": "has a blank"}, "providers.fcm: server_key: "),
        ({"api": "v2"}, "providers.fcm.api: Invalid enum value 'v2'"),
        ({"api": "v1"}, "providers.fcm: credentials_file: v1 needs"),
        ({"credentials_file": "/nowhere/key.json"}, "providers.fcm: credentials_file: /nowhere/key.json: No such file"),
        ({"server_key": "k", "base_url": "ftp://a.example"}, "providers.fcm: base_url: "),
        ({"server_key": "k", "base_url": "https://a.example/?x=1"}, "providers.fcm: base_url: "),
        ({"server_key": "k", "data_variables": ["google.c"]}, "providers.fcm: data_variables: 'google.c'"),
        ({"server_key": "k", "data_variables": ["from"]}, "providers.fcm: data_variables: 'from'"),
        ({"server_key": "k", "data_variables": ["trace_id"]}, "providers.fcm: data_variables: 'trace_id'"),
        ({"server_key": "k", "answers": {"6xx": {"outcome": "sent", "classification": "x"}}}, "providers.fcm: answers"),
        ({"server_key": "k", "answers": {"X": {"outcome": "lost"}}}, "providers.fcm.answers[...].outcome: "),
        ({"server_key": "k", "nonsense": 1}, "providers.fcm.nonsense: "),
    ],
)
def test_wrong_settings_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as wrong:
        start(**options)
    assert str(wrong.value).startswith(message)


@pytest.mark.parametrize(
    ("content", "changes", "message"),
    [
        ("not json", {}, "is not a service account's key file"),
        ("\xff", {}, "is not a service account's key file"),
        ("{}", {}, "is not a service account's key file: Object missing required field `type`"),
        (None, {"type": "authorized_user"}, "holds 'authorized_user'; only a service_account"),
        (None, {"token_uri": "file:///etc/passwd"}, "token_uri is not a URL"),
        (None, {"private_key": "nonsense"}, "private_key is not an RSA key in PEM"),
        (None, {"private_key": PEM[:-60]}, "private_key is not an RSA key in PEM"),
        (None, {"private_key": EC_PEM}, "private_key is not an RSA key in PEM"),
        (None, {"project_id": ""}, "project_id: neither here nor in"),
        (None, {"project_id": "a/../b"}, "project_id: neither here nor in"),
    ],
)
def test_a_bad_key_file_is_named_and_not_shown(
    tmp_path: Path, content: str | None, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError) as wrong:
        start(credentials_file=key_file(tmp_path, content, **changes))
    assert message in str(wrong.value)
    assert PEM.splitlines()[1] not in str(wrong.value)


def test_a_key_in_place_of_its_file_is_not_shown(tmp_path: Path) -> None:
    content = Path(key_file(tmp_path)).read_text()
    with pytest.raises(ConfigurationError, match="takes the path of the key file") as wrong:
        start(credentials_file=content)
    assert PEM.splitlines()[1] not in str(wrong.value)


def test_secrets_never_show(tmp_path: Path) -> None:
    old = start(server_key=SERVER_KEY, webhook_secret="relay-secret")
    new = start(credentials_file=key_file(tmp_path))
    shown = f"{vars(old)!r} {vars(new)!r} {vars(vars(new)['_tokens'])!r}"
    assert SERVER_KEY not in shown
    assert "relay-secret" not in shown
    assert PEM.splitlines()[1] not in shown
    assert "Secret(***)" in shown
