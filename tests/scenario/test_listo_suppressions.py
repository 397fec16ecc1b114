"""Suppressions over HTTP: operators add, list and end them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support import listo_callbacks as vendors
from tests.support.client import Reply
from tests.support.listo_stand import Listo, shared_fixture

listo = shared_fixture()
PATH = "/api/v1/suppressions"


def suppress(listo: Listo, address: str, **fields: Any) -> Reply:
    body = {"channel": "email", "address": address, "reason": "asked on the phone", **fields}
    return listo.client.call("POST", PATH, body)


def test_a_suppressed_address_gets_nothing_until_the_suppression_ends(listo: Listo) -> None:
    address = vendors.email()
    reply = suppress(listo, address)
    assert reply.status == 200
    assert {name: reply.body[name] for name in ("channel", "address", "tenantId", "source", "expiresAt")} == {
        "channel": "email",
        "address": address,
        "tenantId": None,
        "source": "operator",
        "expiresAt": None,
    }
    mails = len(listo.sendgrid.mails)
    skipped = listo.sent("order_confirmed", "email", recipient=address)
    assert listo.until(skipped, "skipped")["lastError"] == "the address is suppressed"
    assert len(listo.sendgrid.mails) == mails
    assert listo.client.call("DELETE", f"{PATH}?channel=email&address={address}").body == {"removed": 1}
    listo.until(listo.sent("order_confirmed", "email", recipient=address), "delivered")
    assert len(listo.sendgrid.mails) == mails + 1
    assert listo.client.call("DELETE", f"{PATH}?channel=email&address={address}").status == 404


def test_a_suppression_may_expire(listo: Listo) -> None:
    address = vendors.email()
    end = (datetime.now(UTC) + timedelta(hours=2)).isoformat(timespec="milliseconds")
    reply = suppress(listo, address, expiresAt=end)
    shown = datetime.fromisoformat(reply.body["expiresAt"])
    assert abs((shown - datetime.fromisoformat(end)).total_seconds()) < 1
    assert suppress(listo, address).body["expiresAt"] is None


def test_lists_are_filtered_and_paged(listo: Listo) -> None:
    addresses = [vendors.phone() for _ in range(5)]
    for address in addresses:
        suppress(listo, address, channel="sms", tenantId="tenant-of-five")
    first = listo.client.get(f"{PATH}?tenantId=tenant-of-five&pageSize=2&page=1").body
    assert (first["totalCount"], first["totalPages"], first["pageNumber"], first["pageSize"]) == (5, 3, 1, 2)
    pages = [first, *(listo.client.get(f"{PATH}?tenantId=tenant-of-five&pageSize=2&page={n}").body for n in (2, 3))]
    assert sorted(item["address"] for page in pages for item in page["items"]) == sorted(addresses)
    one = listo.client.get(f"{PATH}?channel=sms&source=operator&address={addresses[0].replace('+', '%2B')}").body
    assert [item["address"] for item in one["items"]] == addresses[:1]
    assert listo.client.get(f"{PATH}?tenantId=tenant-of-five&channel=email").body["items"] == []


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"expiresAt": "2001-01-01T00:00:00Z"}, "expiresAt"),
        ({"expiresAt": "2099-01-01T00:00:00"}, "expiresAt"),
        ({"expiresAt": "2099-13-01T00:00:00Z"}, "expiresAt"),
        ({"reason": ""}, "reason"),
        ({"address": "a\nb"}, "address"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_what_makes_no_sense_is_refused(listo: Listo, fields: dict[str, Any], field: str) -> None:
    reply = suppress(listo, **{"address": vendors.email(), **fields})
    assert reply.status == 400
    assert reply.body["error"]["details"][0]["field"] == field


def test_deep_pages_are_refused(listo: Listo) -> None:
    assert listo.client.get(f"{PATH}?page=10000&pageSize=200").status == 400
