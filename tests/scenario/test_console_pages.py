"""A listener that serves health checks and the console alone lists no page whose endpoints it does not serve."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.billing_stand import Billing
from tests.support.billing_stand import stand_fixture as billing_fixture
from tests.support.client import Client
from tests.support.process import Program, run_carillon

billing: Any = billing_fixture(params=("sqlite",))
WHY = 'this page needs the whole API: set http.surface = "full"'
HEALTH = {"CARILLON_HTTP__SURFACE": "health"}


def surface(program: Program) -> dict[str, Any]:
    return dict(Client.of(program).get("/api/v1/console/surface").body)


@pytest.mark.req("P-643")
def test_of_local_the_overview_is_left(tmp_path: Path) -> None:
    env = {"DATABASE_URL": f"sqlite:///{tmp_path}/c.db", "CARILLON_HTTP__PORT": "0"}
    with Program("serve", env=env, cwd=tmp_path) as whole:
        pages = surface(whole)["pages"]
        assert {"overview", "notifications", "templates", "rehearsal"} <= set(pages)
    with Program("serve", env=env | HEALTH, cwd=tmp_path) as health:
        found = surface(health)
        assert found["pages"] == ["overview"]
        assert found["absent"].keys() == set(pages) - {"overview"}
        assert {why for page, why in found["absent"].items() if page != "rehearsal"} == {WHY}
        client = Client.of(health)
        assert client.get("/api/v1/console/overview").status == 200
        assert client.get("/api/v1/console/history").status == 200
        assert client.get("/api/v1/notifications").status == 404


@pytest.mark.req("P-643")
def test_of_billing_nothing_is_left_and_top_says_why(billing: Billing) -> None:
    program = billing.start_payment(**HEALTH)
    found = surface(program)
    assert (found["pages"], found["absent"]["queues"]) == ([], WHY)
    address = str(program.wait_ready()["addresses"][0])
    done = run_carillon(["top", "--once", "--url", address])
    assert WHY in done.stderr, done
