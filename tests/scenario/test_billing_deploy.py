"""The compose file of billing, read as Compose reads it: there is no container engine here to start it with."""

import re
from typing import Any

import pytest
import yaml

from carillon.compose import access
from carillon.compose.billing import BillingRole, Neighbours
from carillon.config.reading import load
from tests.deploy.dockerfile import stages, variables
from tests.support.sources import ROOT

FILE = ROOT / "deploy" / "billing.compose.yaml"
IMAGE = stages(ROOT / "deploy" / "Dockerfile")[-1]
_NEEDED = re.compile(r"\$\{(?P<name>\w+):\?[^}]+\}")
CHOSEN = {
    "WEBHOOK_SIGNING_SECRET": "invented-for-the-test",
    "SERVICE_TOKEN": "invented-too",
    "JWT_SECRET_KEY": "invented-with-at-least-32-characters",
    "POSTGRES_PASSWORD": "invented",
}


@pytest.fixture(scope="module")
def compose() -> Any:
    return yaml.safe_load(FILE.read_text())


def environment(service: Any) -> dict[str, str]:
    """With everything filled in that the operator must choose; nothing has a default."""
    return {
        name: _NEEDED.sub(lambda found: CHOSEN[found["name"]], text) for name, text in service["environment"].items()
    }


@pytest.mark.req("S3-95")
def test_the_services_wait_for_a_healthy_redis_and_database(compose: Any) -> None:
    assert set(compose["services"]) == {"payment", "subscription", "redis", "postgres"}
    for name, service in compose["services"].items():
        assert service["healthcheck"]["test"], name
        assert service["restart"] == "unless-stopped", name
    for name in BillingRole:
        gates = compose["services"][name]["depends_on"]
        assert gates == {
            "redis": {"condition": "service_healthy"},
            "postgres": {"condition": "service_healthy"},
        }
    assert "noeviction" in compose["services"]["redis"]["command"]
    kept = {
        volume.partition(":")[0] for name in ("redis", "postgres") for volume in compose["services"][name]["volumes"]
    }
    assert kept == set(compose["volumes"]), "what a restart must not lose is on a volume"


@pytest.mark.req("S3-95")
@pytest.mark.parametrize("name", list(BillingRole))
def test_each_service_would_start_with_what_it_is_given(compose: Any, name: BillingRole) -> None:
    service = compose["services"][name]
    given = environment(service)
    assert not any("$" in value for value in given.values())
    of_image = {name: value for name, value in variables(IMAGE).items() if name.startswith("CARILLON_")}
    settings = load("billing", environ={**of_image, **given})
    access.refuse_open_door(settings)
    *start, option, words = service["command"]
    assert (start, option) == (["serve", "--blueprint", "billing"], "--roles")
    assert service["build"] == {"context": "..", "dockerfile": "deploy/Dockerfile"}
    assert service["read_only"]
    assert words == name
    assert settings.billing is not None
    neighbours = Neighbours(settings.billing, frozenset({words}))
    other = next(each for each in BillingRole if each is not name)
    where = neighbours.subscription() if name is BillingRole.PAYMENT else neighbours.payment()
    assert where == f"http://{other}:{settings.http.port}", (
        "by the other's name in this file, on the port it listens on"
    )
    assert service["ports"][0].endswith(f":{settings.http.port}")
