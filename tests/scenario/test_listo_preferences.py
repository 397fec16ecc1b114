"""The listo blueprint's preferences from outside: language, channels, contacts, and who may change them."""

import itertools
from typing import Any

import pytest

from tests.support.client import Reply
from tests.support.listo_stand import DEVICE, EMAIL, PHONE, SECRET, Listo, shared_fixture, token

listo = shared_fixture(JWT_SECRET_KEY=SECRET)

OWN = "/api/v1/preferences"
ADMIN = token("root", role="admin")
_numbers = itertools.count()


@pytest.fixture
def user() -> str:
    return f"user-{next(_numbers)}"


def call(listo: Listo, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Reply:
    return listo.client.call(method, path, body, ADMIN if headers is None else headers)


def send(listo: Listo, user: str, channel: str = "email", **fields: Any) -> Reply:
    """As the user, with no address in the body."""
    return listo.send("order_confirmed", channel, **{"recipient": None, "headers": token(user), **fields})


def route(listo: Listo, reply: Reply, user: str) -> Any:
    assert reply.status == 202, reply
    return listo.story(reply.body["notificationId"], token(user))["routes"][0]


@pytest.mark.req("S2-115", "S2-116")
def test_before_anything_was_said_everything_is_on(listo: Listo, user: str) -> None:
    reply = call(listo, "GET", OWN, headers=token(user, tenant="acme"))
    assert reply.status == 200
    assert reply.body == {
        "userId": user,
        "tenantId": "acme",
        "preferredLocale": None,
        "channels": {name: {"isEnabled": True} for name in ("email", "sms", "push", "inApp", "webhook")},
        "categories": {},
        "required": [],
        "contacts": {},
        "timeZone": None,
        "quietHours": {
            "enabled": False,
            "startTime": None,
            "endTime": None,
            "timezone": "UTC",
            "days": [],
            "holidays": None,
        },
        "updatedAt": None,
    }


@pytest.mark.req("S2-115")
def test_put_replaces_and_patch_changes(listo: Listo, user: str) -> None:
    mine = token(user)
    quiet: dict[str, Any] = {
        "enabled": True,
        "startTime": "22:00",
        "endTime": "07:00",
        "timezone": "America/Mexico_City",
        "days": [],
    }
    quiet["holidays"] = None
    said = {"preferredLocale": "es-MX", "channels": {"sms": {"isEnabled": False}}, "quietHours": quiet}
    put = call(listo, "PUT", OWN, said, mine)
    assert (put.status, put.body["preferredLocale"], put.body["quietHours"]) == (200, "es-MX", quiet)
    assert (put.body["channels"]["sms"], put.body["channels"]["email"]) == ({"isEnabled": False}, {"isEnabled": True})
    patch = call(listo, "PATCH", OWN, {"contacts": {"email": EMAIL, "phone": PHONE}}, mine)
    assert (patch.body["preferredLocale"], patch.body["quietHours"]) == ("es-MX", quiet)
    assert patch.body["contacts"] == {"email": EMAIL, "phone": PHONE}
    patch = call(listo, "PATCH", OWN, {"contacts": {"phone": None, "pushToken": DEVICE}, "quietHours": None}, mine)
    assert patch.body["contacts"] == {"email": EMAIL, "pushToken": DEVICE}
    assert patch.body["quietHours"]["enabled"] is False
    assert call(listo, "GET", OWN, headers=mine).body == patch.body
    again = call(listo, "PUT", OWN, {}, mine).body
    assert (again["preferredLocale"], again["contacts"]) == (None, {})
    assert again["channels"]["sms"] == {"isEnabled": True}


@pytest.mark.req("S2-115", "S2-117")
def test_other_peoples_take_an_administrator_of_theirs(listo: Listo, user: str) -> None:
    path = f"{OWN}/user/{user}"
    mine, neighbour = token(user, tenant="acme"), token("somebody-else", tenant="acme")
    theirs, foreign = token("boss", role="admin", tenant="acme"), token("boss", role="admin", tenant="other")
    assert call(listo, "PATCH", path, {"preferredLocale": "es-MX"}, theirs).body["preferredLocale"] == "es-MX"
    assert call(listo, "GET", path, headers=mine).body["preferredLocale"] == "es-MX"
    assert call(listo, "GET", OWN, headers=mine).body["preferredLocale"] == "es-MX"
    for method in ("GET", "PUT", "PATCH"):
        body = None if method == "GET" else {"preferredLocale": "en-US"}
        assert call(listo, method, path, body, neighbour).status == 403
        assert call(listo, method, path, body, {}).status == 401
        assert call(listo, method, f"{path}?tenantId=acme", body, foreign).status == 403
    assert call(listo, "GET", path, headers=foreign).body["preferredLocale"] is None
    assert call(listo, "GET", path).body["preferredLocale"] is None
    assert call(listo, "GET", f"{path}?tenantId=acme").body["preferredLocale"] == "es-MX"


@pytest.mark.req("S2-115", "S2-05")
@pytest.mark.parametrize(
    ("body", "culprit"),
    [
        ({"contacts": {"email": "nobody"}}, "contacts.email"),
        ({"contacts": {"email": "a@b.example\r\nBcc: x@y.example"}}, "contacts.email"),
        ({"contacts": {"phone": "0151 234"}}, "contacts.phone"),
        ({"contacts": {"pushToken": "two words"}}, "contacts.pushToken"),
        ({"contacts": {"fax": "1"}}, "fax"),
        ({"preferredLocale": "no locale"}, "preferredLocale"),
        ({"channels": {"fax": {"isEnabled": True}}}, "fax"),
        ({"channels": {"sms": {"isEnabled": "no"}}}, "isEnabled"),
        ({"channels": {"sms": {}}}, "isEnabled"),
        ({"quietHours": {"enabled": True}}, "startTime"),
        ({"quietHours": {"startTime": "25:00", "endTime": "07:00"}}, "startTime"),
        ({"quietHours": {"startTime": "22:00", "endTime": "07:00", "timezone": "Mars/Olympus"}}, "timezone"),
        ({"quietHours": {"startTime": "22:00", "endTime": "07:00", "timezone": "../../etc/passwd"}}, "timezone"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_what_cannot_be_wished_is_refused(listo: Listo, user: str, body: dict[str, Any], culprit: str) -> None:
    reply = call(listo, "PATCH", OWN, body, token(user))
    assert (reply.status, reply.body["error"]["code"]) == (400, "VALIDATION_ERROR")
    assert culprit in f"{reply.body['error']['message']} {reply.body['error']['details']}"
    assert call(listo, "GET", OWN, headers=token(user)).body["updatedAt"] is None


@pytest.mark.req("S2-115", "S2-100")
def test_the_next_message_speaks_the_preferred_language(listo: Listo, user: str) -> None:
    assert route(listo, send(listo, user, recipient=EMAIL), user)["locale"] == "en-US"
    call(listo, "PATCH", OWN, {"preferredLocale": "es-MX"}, token(user))
    assert route(listo, send(listo, user, recipient=EMAIL), user)["locale"] == "es-MX"
    header = {**token(user), "Accept-Language": "en-US"}
    assert route(listo, send(listo, user, recipient=EMAIL, headers=header), user)["locale"] == "es-MX"


@pytest.mark.req("S2-04")
def test_the_address_is_the_bodys_else_the_users_own_else_nobodys(listo: Listo, user: str) -> None:
    before = listo.rows("SELECT count(*) AS n FROM records")
    nobody = send(listo, user)
    assert (nobody.status, nobody.body["error"]["code"]) == (422, "RECIPIENT_UNRESOLVED")
    assert listo.rows("SELECT count(*) AS n FROM records") == before
    contacts = {"email": EMAIL, "phone": PHONE, "pushToken": DEVICE}
    call(listo, "PATCH", OWN, {"contacts": contacts}, token(user))
    for channel, address in (("email", EMAIL), ("sms", PHONE), ("push", DEVICE)):
        assert route(listo, send(listo, user, channel), user)["recipient"] == address
    assert route(listo, send(listo, user, recipient="other@example.com"), user)["recipient"] == "other@example.com"
    story = listo.story(send(listo, user).body["notificationId"], token(user))
    assert story["userId"] == user
    by_admin = send(listo, user, headers=ADMIN, userId=user)
    assert route(listo, by_admin, user)["recipient"] == EMAIL
    elsewhere = send(listo, user, headers=token(user, tenant="acme"))
    assert elsewhere.status == 422


@pytest.mark.req("S2-115")
def test_a_channel_that_is_off_is_refused_and_nothing_is_stored(listo: Listo, user: str) -> None:
    call(listo, "PATCH", OWN, {"channels": {"sms": {"isEnabled": False}}, "contacts": {"phone": PHONE}}, token(user))
    before = listo.rows("SELECT count(*) AS n FROM records")
    for fields in ({}, {"recipient": PHONE}):
        refused = send(listo, user, "sms", **fields)
        assert (refused.status, refused.body["error"]["code"]) == (422, "CHANNEL_DISABLED")
    assert listo.rows("SELECT count(*) AS n FROM records") == before
    assert send(listo, user, recipient=EMAIL).status == 202
    call(listo, "PATCH", OWN, {"channels": {"sms": {"isEnabled": True}}}, token(user))
    assert send(listo, user, "sms").status == 202


@pytest.mark.req("S2-116")
def test_quiet_hours_are_kept_and_not_acted_upon(listo: Listo, user: str) -> None:
    always = {"startTime": "00:00", "endTime": "23:59"}
    call(listo, "PATCH", OWN, {"quietHours": always, "contacts": {"email": EMAIL}}, token(user))
    accepted = send(listo, user)
    assert listo.story(accepted.body["notificationId"], token(user))["scheduledFor"] is None
