"""One person, categories and digests over HTTP, on both ledgers: what is shown, and to whom."""

import itertools
from typing import Any

import pytest

from tests.support.listo_stand import SECRET, Listo, shared_fixture
from tests.support.listo_templates import ACME, ADMIN, OTHER, USER, call, post

SETTINGS = """
[categories.orders]
[categories.security]
required = true
[categories.marketing]
channels = { sms = false }
throttle = "2 in 1h"
"""
listo = shared_fixture(SETTINGS, JWT_SECRET_KEY=SECRET)
_numbers = itertools.count()


def get(listo: Listo, path: str, headers: dict[str, str]) -> Any:
    return call(listo, "GET", path, headers=headers)


@pytest.fixture
def who(listo: Listo) -> str:
    """Somebody of acme who has left marketing, with a digest that gathers."""
    name = f"person-{next(_numbers)}"
    body = {"contacts": {"email": f"{name}@example.org"}, "categories": {"marketing": {"email": False, "sms": True}}}
    assert call(listo, "PATCH", f"/api/v1/preferences/user/{name}", body, ACME).status == 200
    key = f"people_{name.replace('-', '_')}"
    post(listo, key, ACME)
    sent = {"templateKey": key, "channel": "email", "userId": name, "data": {"name": "Ada"}, "category": "orders"}
    digest = {"digest": {"key": "news", "window": "1h"}}
    for _ in range(2):
        assert call(listo, "POST", "/api/v1/notifications/send", sent | digest, ACME).status == 202
    return name


@pytest.mark.req("P-511")
def test_a_person_of_a_tenant_is_nobody_elsewhere(listo: Listo, who: str) -> None:
    own = get(listo, f"/api/v1/people/{who}", ACME).body
    assert (own["id"], own["tenantId"], own["known"]) == (who, "acme", True)
    assert own["preferences"]["categories"]["marketing"]["email"] is False
    assert [(one["key"], one["events"]) for one in own["digests"]] == [("news", 2)]
    assert own["throttles"] == [{"category": "marketing", "atMost": "2 in 1h", "sent": 0, "full": False}]
    other = get(listo, f"/api/v1/people/{who}", OTHER).body
    assert (other["known"], other["digests"], other["preferences"]["contacts"]) == (False, [], {})
    assert get(listo, f"/api/v1/people/{who}?tenantId=acme", OTHER).status == 403
    assert get(listo, f"/api/v1/people/{who}?tenantId=acme", ADMIN).body == own
    assert get(listo, f"/api/v1/people/{who}", USER).status == 403


@pytest.mark.req("P-512")
def test_a_digest_and_its_events_are_its_tenants(listo: Listo, who: str) -> None:
    (digest,) = get(listo, f"/api/v1/people/{who}", ACME).body["digests"]
    path = f"/api/v1/digests/{digest['id']}"
    found = get(listo, path, ACME).body
    assert found["digest"] == digest
    assert [one["category"] for one in found["events"]] == ["orders", "orders"]
    assert get(listo, path, ADMIN).body == found
    assert get(listo, path, OTHER).status == 404
    assert get(listo, "/api/v1/digests/nothing", ACME).status == 404


@pytest.mark.req("P-512")
def test_categories_count_the_tenants_own_people(listo: Listo, who: str) -> None:
    assert who
    by_name = {one["name"]: one for one in get(listo, "/api/v1/categories", ACME).body["items"]}
    marketing = by_name["marketing"]
    assert (marketing["defaults"]["sms"], marketing["throttle"]) == (False, "2 in 1h")
    assert marketing["left"]["email"] >= 1
    assert marketing["joined"]["sms"] >= 1
    assert by_name["security"]["required"]
    other = get(listo, "/api/v1/categories", OTHER).body
    assert other["people"] == 0
    assert all(one["left"] == {} and one["joined"] == {} for one in other["items"])
