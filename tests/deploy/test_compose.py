"""The compose file, read as Compose reads it; its commands are run, its containers are not."""

import re
from typing import Any

import pytest
import yaml

from carillon.compose import access
from carillon.config.reading import load
from tests.deploy.dockerfile import stages, variables
from tests.support.docs_facts import commands
from tests.support.sources import ROOT

FILE = ROOT / "deploy" / "compose.yaml"
OURS, STORES = ("migrate", "doors", "outbound"), ("postgres", "redis", "rabbitmq")
_NEEDED = re.compile(r"\$\{(?P<name>\w+)(?::\?[^}]+|:-(?P<default>[^}]*))\}")
CHOSEN = {
    "JWT_SECRET_KEY": "invented-with-at-least-32-characters",
    "POSTGRES_PASSWORD": "invented",
    "RABBITMQ_PASSWORD": "invented",
}


@pytest.fixture(scope="module")
def services() -> Any:
    return yaml.safe_load(FILE.read_text())["services"]


def environment(service: Any) -> dict[str, str]:
    def filled(found: "re.Match[str]") -> str:
        return CHOSEN[found["name"]] if found["default"] is None else str(found["default"])

    return {name: _NEEDED.sub(filled, text) for name, text in service["environment"].items()}


def test_each_waits_for_what_it_needs(services: Any) -> None:
    assert set(services) == {*OURS, *STORES}
    for name in ("doors", "outbound"):
        gates = {need: gate["condition"] for need, gate in services[name]["depends_on"].items()}
        assert gates == {**dict.fromkeys(STORES, "service_healthy"), "migrate": "service_completed_successfully"}
    assert services["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    for name in STORES:
        assert services[name]["healthcheck"]["test"], name


def test_what_a_restart_must_not_lose_is_on_a_volume(services: Any) -> None:
    kept = {volume.partition(":")[0] for name in STORES for volume in services[name]["volumes"]}
    assert kept == set(yaml.safe_load(FILE.read_text())["volumes"])
    assert {"noeviction", "yes"} <= set(services["redis"]["command"])
    assert services["rabbitmq"]["hostname"], "its data folder has the host's name in it"


@pytest.mark.parametrize("name", OURS)
def test_ours_can_do_nothing_but_their_work(services: Any, name: str) -> None:
    service = services[name]
    assert service["build"] == {"context": "..", "dockerfile": "deploy/Dockerfile"}
    assert service["read_only"]
    assert service["tmpfs"] == ["/tmp"]  # noqa: S108 - the container's own
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))


@pytest.mark.parametrize("name", OURS)
def test_ours_would_start_with_what_they_are_given(services: Any, name: str) -> None:
    service = services[name]
    given = environment(service)
    assert not any("$" in value for value in given.values())
    of_image = {"CARILLON_HTTP__HOST": variables(stages(ROOT / "deploy" / "Dockerfile")[-1])["CARILLON_HTTP__HOST"]}
    settings = load(given.pop("CARILLON_BLUEPRINT"), environ={**of_image, **given})
    access.refuse_open_door(settings)
    assert settings.rabbitmq_door.queue
    assert settings.redis.location() == "redis://redis:6379/0"
    assert int(service["stop_grace_period"].removesuffix("s")) > settings.work.drain_seconds
    command, *options = service["command"]
    assert set(options[::2]) <= commands()[f"carillon {command}"]


def test_together_they_have_every_role(services: Any) -> None:
    roles = [role for name in ("doors", "outbound") for role in services[name]["command"][-1].split(",")]
    assert sorted(roles) == ["doors", "outbound", "upkeep"]


def test_no_secret_has_a_default() -> None:
    found = {match["name"]: match["default"] for match in _NEEDED.finditer(FILE.read_text())}
    assert {name for name, default in found.items() if default is None} == set(CHOSEN)
