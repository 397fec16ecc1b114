"""What leaves for the gateway and for mail has exactly the fields of the galaxy blueprint."""

import json
from typing import Any

import pytest

from carillon.blueprints.galaxy import notification_generated
from carillon.blueprints.galaxy.wire import GalaxyWire
from carillon.domain.intents import canonical
from tests.support.galaxy import CATALOGUE, ENTRY_ID, PUSHED, TYPES, claim_for, payload_for

ENCODERS = GalaxyWire.open(CATALOGUE, {}).encoders
TURN = "game.turn.ready"
NAMES = {"game_name", "applicant_name", "membership_user_name", "inviter_name", "invitee_name"}


def decoded(notification_type: str, payload: bytes) -> dict[str, Any]:
    """The payload as the checked-in bindings read it."""
    push = CATALOGUE.types[notification_type].push
    assert push is not None
    table = getattr(notification_generated, push.table).GetRootAs(payload, 0)
    found = {slot.name: getattr(table, slot.name.title().replace("_", ""))() for slot in push.fields}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in found.items()}


def test_there_is_an_encoder_for_each_channel() -> None:
    assert set(ENCODERS) == {"push", "email"}


@pytest.mark.req("S1-128", "S1-129", "S1-130")
def test_a_push_entry() -> None:
    entry = ENCODERS["push"](claim_for(TURN))
    assert list(entry) == ["user_id", "event_type", "event_id", "payload_bytes"]
    assert entry["user_id"] == "user-1"
    assert entry["event_type"] == TURN
    assert entry["event_id"] == f"{ENTRY_ID}/push:user:user-1"
    assert isinstance(entry["payload_bytes"], bytes)
    traced = ENCODERS["push"](claim_for(TURN, request_id="r-1", trace_id="t-1"))
    assert traced == entry | {"request_id": "r-1", "trace_id": "t-1"}


@pytest.mark.req("S1-128")
@pytest.mark.parametrize("user_id", ["user-1", "a@b.c", "user:7", "ü/ß %"])
def test_the_user_is_the_one_of_the_route(user_id: str) -> None:
    entry = ENCODERS["push"](claim_for(TURN, recipient_ref=f"user:{user_id}", route_id=f"push:user:{user_id}"))
    assert entry["user_id"] == user_id
    assert entry["event_id"] == f"{ENTRY_ID}/push:user:{user_id}"


@pytest.mark.req("S1-131", "S1-133", "S1-134", "S1-135", "S1-136", "S1-137")
@pytest.mark.req("S1-138", "S1-139", "S1-140", "S1-141", "S1-142")
@pytest.mark.parametrize("name", PUSHED)
def test_the_payload_is_the_types_table(name: str) -> None:
    push = CATALOGUE.types[name].push
    assert push is not None
    payload = ENCODERS["push"](claim_for(name))["payload_bytes"]
    assert isinstance(payload, bytes)
    wanted = {slot.name: payload_for(name)[slot.name] for slot in push.fields}
    assert decoded(name, payload) == wanted
    # A size prefix or an identifier would move the root: the first word is its offset, right inside the buffer.
    assert 4 <= int.from_bytes(payload[:4], "little") < len(payload)


@pytest.mark.req("S1-144")
@pytest.mark.parametrize("name", PUSHED)
def test_names_of_games_and_people_stay_at_home(name: str) -> None:
    extra = payload_for(name) | {"secret": "not in the table"}
    payload = ENCODERS["push"](claim_for(name, payload_json=canonical(extra)))["payload_bytes"]
    assert isinstance(payload, bytes)
    unsaid = {field for field in extra if field in NAMES | {"secret"}}
    assert unsaid
    for field in unsaid:
        assert str(extra[field]).encode() not in payload
    assert str(extra.get("game_id", extra.get("race_name"))).encode() in payload


@pytest.mark.req("S1-143")
@pytest.mark.parametrize("number", [0, 1, 2**31, 2**63 - 1])
def test_turn_numbers_have_64_bits(number: int) -> None:
    text = canonical(payload_for(TURN) | {"turn_number": number})
    payload = ENCODERS["push"](claim_for(TURN, payload_json=text))["payload_bytes"]
    assert isinstance(payload, bytes)
    assert decoded(TURN, payload)["turn_number"] == number


@pytest.mark.req("S1-145")
@pytest.mark.parametrize("name", sorted(set(TYPES) - set(PUSHED)))
def test_types_without_push_have_no_payload(name: str) -> None:
    with pytest.raises(ValueError, match="has no push payload"):
        ENCODERS["push"](claim_for(name))


@pytest.mark.req("S1-145")
def test_administrators_have_no_client_to_push_to() -> None:
    claim = claim_for("lobby.application.submitted", recipient_ref="email:ops@example.com")
    with pytest.raises(ValueError, match="push reaches users only"):
        ENCODERS["push"](claim)


CORRUPT = ["", "{", "[]", "null", "7", '"x"', "{}x", '{"game_id":\ud800}', '{"a":"\\ud800"}', "{'a':1}"]


@pytest.mark.parametrize("channel", ["push", "email"])
@pytest.mark.parametrize("text", CORRUPT, ids=ascii)
def test_a_corrupt_payload_cannot_be_encoded(channel: str, text: str) -> None:
    with pytest.raises(ValueError):
        ENCODERS[channel](claim_for(TURN, channel, payload_json=text))


@pytest.mark.parametrize(
    "changes",
    [
        {"game_id": 7},
        {"game_id": None},
        {"turn_number": "54"},
        {"turn_number": 54.0},
        {"turn_number": True},
        {"turn_number": 2**63},
        {"turn_number": 2**70},
    ],
)
def test_a_payload_that_does_not_fit_its_table_cannot_be_encoded(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        ENCODERS["push"](claim_for(TURN, payload_json=json.dumps(payload_for(TURN) | changes)))


def test_equal_payloads_are_encoded_once_and_long_ones_not_kept() -> None:
    one, two = (ENCODERS["push"](claim_for(TURN))["payload_bytes"] for _ in range(2))
    assert one is two
    text = canonical(payload_for(TURN) | {"long": "x" * 5000})
    three, four = (ENCODERS["push"](claim_for(TURN, payload_json=text))["payload_bytes"] for _ in range(2))
    assert three == four == one
    assert three is not four


@pytest.mark.req("S1-148", "S1-149", "S1-150", "S1-151")
def test_a_mail_command() -> None:
    claim = claim_for(TURN, "email")
    entry = ENCODERS["email"](claim)
    assert entry == {
        "delivery_id": f"{ENTRY_ID}/email:user:user-1",
        "source": "notification",
        "payload_mode": "template",
        "idempotency_key": f"notification:{ENTRY_ID}/email:user:user-1",
        "requested_at_ms": "1775121700123",
        "payload_json": (
            '{"to":["pilot@example.com"],"cc":[],"bcc":[],"reply_to":[],"template_id":"game.turn.ready","locale":"en",'
            '"variables":{"game_id":"game-123","game_name":"Nebula Clash","turn_number":54},"attachments":[]}'
        ),
    }
    traced = ENCODERS["email"](claim_for(TURN, "email", request_id="r-1", trace_id="t-1"))
    assert traced == entry | {"request_id": "r-1", "trace_id": "t-1"}


@pytest.mark.req("S1-44", "S1-149")
@pytest.mark.parametrize("name", TYPES)
def test_every_type_passes_its_whole_payload_on(name: str) -> None:
    extra = payload_for(name) | {"more": {"ü": ['"', "\n", 54, 54.0, None]}}
    entry = ENCODERS["email"](claim_for(name, "email", payload_json=canonical(extra)))
    command = json.loads(entry["payload_json"])
    assert command["variables"] == extra
    assert command["template_id"] == name


@pytest.mark.parametrize("word", ['"quoted"@example.com', "back\\slash@example.com", "ü@example.com", "tab\t@x.y"])
def test_addresses_and_locales_cannot_break_out_of_their_text(word: str) -> None:
    entry = ENCODERS["email"](claim_for(TURN, "email", address=word, resolved_locale=word))
    command = json.loads(entry["payload_json"])
    assert (command["to"], command["locale"]) == ([word], word)


def test_without_a_locale_it_is_english() -> None:
    entry = ENCODERS["email"](claim_for(TURN, "email", resolved_locale=None))
    assert json.loads(entry["payload_json"])["locale"] == "en"


@pytest.mark.parametrize("address", [None, ""])
def test_mail_needs_an_address(address: str | None) -> None:
    with pytest.raises(ValueError, match="no address"):
        ENCODERS["email"](claim_for(TURN, "email", address=address))
