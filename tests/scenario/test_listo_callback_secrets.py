"""A callback whose secret is not set: there is no endpoint, and the start and the doctor say so."""

import asyncio
from pathlib import Path

import pytest

from carillon.compose.blueprints import examine
from carillon.config.reading import load
from tests.support import listo_callbacks as vendors
from tests.support.listo_stand import Listo

SECRETS = {
    "FCM": ("FCM_WEBHOOK_SECRET", "webhook_secret", vendors.FCM),
    "AZURE_ACS": ("ACS_WEBHOOK_SECRET", "webhook_secret", vendors.AZURE),
    "SendGrid": ("SENDGRID_WEBHOOK_PUBLIC_KEY", "webhook_public_key", vendors.SENDGRID),
}


def examined(stand: Listo, **environment: str) -> dict[str, str]:
    """What the doctor warns of, by part."""
    settings = load(None, stand.folder / "listo.toml", stand.environment(**environment))
    return {one.part: one.words for one in asyncio.run(examine(settings)) if one.verdict == "warn"}


@pytest.mark.req("S2-95", "S2-96")
@pytest.mark.parametrize("provider", SECRETS)
def test_without_its_secret_a_callback_does_not_exist(tmp_path: Path, provider: str) -> None:
    variable, option, path = SECRETS[provider]
    with Listo(tmp_path, f"sqlite:///{tmp_path}/listo.db") as stand:
        program = stand.start(**{variable: ""})
        said = program.wait_for("remark")
        assert said["setting"] == f"providers.{provider}"
        assert f"{option} ({variable}) is not set: {path} does not exist" in said["message"]
        assert len(program.events("remark")) == 1
        assert vendors.post(stand, path, b"[]", {"content-type": "application/json"}).status == 404
        assert path not in stand.client.get("/openapi.json").body["paths"]
        for other, (_, _, served) in SECRETS.items():
            if other != provider:
                assert vendors.post(stand, served, b"[]", {"content-type": "application/json"}).status == 401
        assert f"{option} ({variable}) is not set" in examined(stand, **{variable: ""})[f"Provider {provider}"]


def test_with_every_secret_nothing_is_said(tmp_path: Path) -> None:
    with Listo(tmp_path, f"sqlite:///{tmp_path}/listo.db") as stand:
        assert stand.start().events("remark") == []
        assert not {part for part in examined(stand) if part.startswith("Provider")}
