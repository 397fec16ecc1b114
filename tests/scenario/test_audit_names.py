"""Who did something by hand, and why, in the audit trail of a process that asks nobody for a name."""

from pathlib import Path

import pytest

from tests.support.client import Client
from tests.support.process import Program

pytestmark = pytest.mark.req("P-955")

BY_HAND = {"X-Admin-Override": "true"}
ADDRESS = "ada@example.org"


def test_everybody_without_a_name_is_called_the_same(tmp_path: Path) -> None:
    environment = {"DATABASE_URL": f"sqlite:///{tmp_path}/c.db", "CARILLON_HTTP__PORT": "0"}
    with Program("serve", env=environment, cwd=tmp_path) as program:
        client = Client.of(program)
        pause = {"scope": "lane", "name": "bulk", "reason": "the printer burns"}
        suppress = {"channel": "email", "address": ADDRESS, "reason": f"{ADDRESS} called us"}
        done = [
            client.call("POST", "/api/v1/admin/pauses", pause, BY_HAND),
            client.call("POST", "/api/v1/suppressions", suppress),
            client.call("DELETE", f"/api/v1/suppressions?channel=email&address={ADDRESS}"),
            client.call("DELETE", "/api/v1/people/user-7"),
        ]
        assert [one.status for one in done] == [200, 200, 200, 200], [one.body for one in done]
        trail = client.get("/api/v1/admin/audit", BY_HAND).body["items"]
    assert {one["actor"] for one in trail} == {"anonymous"}
    said = {one["action"]: one["reason"] for one in trail}
    assert said["pause"] == "the printer burns"
    assert said["suppress"] == "the address called us"
    assert ADDRESS not in str(trail)
