"""The galaxy blueprint reads entries of the intent stream; a malformed one is stored under its failure code."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carillon.blueprints.galaxy import envelope
from carillon.blueprints.galaxy.catalogue import admin_addresses
from carillon.blueprints.galaxy.wire import GalaxyWire
from carillon.domain.errors import ConfigurationError
from carillon.domain.intents import Intent, Malformed, Recipient, canonical, fingerprint
from tests.support.examples import examples
from tests.support.galaxy import CATALOGUE, ENTRY_ID, OCCURRED, WAYS, fields_for, payload_for

V2_FINGERPRINT = "320e8fa3793fb01f1cf7253a61a74cd199abb34c396e94a3f0047810058dc78a"
OPS = "ops@example.com"
ADMINS = {name: [OPS] for name, kind in WAYS if kind == "admin_email"}
WIRE = GalaxyWire.open(CATALOGUE, ADMINS)
TURN = "game.turn.ready"
PROPERTY = examples(200)


def accepted(fields: dict[str, str], wire: GalaxyWire = WIRE) -> Intent:
    read = wire.decode(ENTRY_ID, fields)
    assert isinstance(read, Intent), read
    return read


def refused(fields: dict[str, str]) -> Malformed:
    read = WIRE.decode(ENTRY_ID, fields)
    assert isinstance(read, Malformed), read
    return read


@pytest.mark.req("S1-47", "S1-50", "S1-52")
def test_the_documents_vector() -> None:
    intent = accepted(
        fields_for(
            TURN,
            idempotency_key="game-master:game-123:turn-54",
            payload_json='{ "turn_number": 54, "game_name": "Nebula Clash",\n"game_id": "game\\u002d123" }',
            recipient_user_ids_json='["user-2", "user-1"]',
        )
    )
    assert fingerprint(intent.content) == V2_FINGERPRINT
    assert intent.notification_id == ENTRY_ID
    assert canonical(intent.payload) == '{"game_id":"game-123","game_name":"Nebula Clash","turn_number":54}'


@pytest.mark.req("S1-71", "S1-72", "S1-73", "S1-74", "S1-75", "S1-76", "S1-77", "S1-78")
@pytest.mark.req("S1-79", "S1-80", "S1-81", "S1-82", "S1-83", "S1-84", "S1-85")
@pytest.mark.parametrize(("name", "kind"), WAYS)
def test_every_type_is_accepted_for_its_audience(name: str, kind: Any) -> None:
    intent = accepted(fields_for(name, kind))
    assert intent.payload == payload_for(name)
    assert intent.occurred_at_ms == OCCURRED
    assert intent.channels == CATALOGUE.types[name].audiences[kind]
    assert set(intent.channels) | set(intent.skips) == {"push", "email"}
    assert (intent.producer, intent.audience_kind) == (CATALOGUE.types[name].producer, kind)
    people = {person.ref for person in intent.recipients}
    assert people == ({"user:user-1", "user:user-2"} if kind == "user" else {f"email:{OPS}"})


def test_users_have_their_id_as_push_address() -> None:
    pushed = accepted(fields_for(TURN, recipient_user_ids_json='["u"]'))
    assert pushed.recipients == (Recipient(ref="user:u", user_id="u", addresses={"push": "u"}),)
    assert (pushed.channels, pushed.skips) == (("push", "email"), {})
    mailed = accepted(fields_for("lobby.invite.expired", recipient_user_ids_json='["u"]'))
    assert mailed.recipients == (Recipient(ref="user:u", user_id="u"),)
    assert mailed.skips == {"push": "push is not a channel of lobby.invite.expired"}


@pytest.mark.req("S1-07")
def test_an_address_among_user_ids_is_only_an_id() -> None:
    (person,) = accepted(fields_for("lobby.invite.created", recipient_user_ids_json='["a@b.c"]')).recipients
    assert (person.ref, person.user_id, person.addresses) == ("user:a@b.c", "a@b.c", {"push": "a@b.c"})


def test_administrators_come_from_the_settings_of_exactly_this_type() -> None:
    wire = GalaxyWire.open(CATALOGUE, {"lobby.application.submitted": ["one@example.com", "two@example.com"]})
    told = accepted(fields_for("lobby.application.submitted", "admin_email"), wire)
    assert told.recipients == tuple(
        Recipient(ref=f"email:{address}", addresses={"email": address}, locale="en")
        for address in ("one@example.com", "two@example.com")
    )
    assert told.skips == {"push": "push is not a channel of lobby.application.submitted for audience admin_email"}
    other = accepted(fields_for("geo.review_recommended"), wire)
    assert [person.ref for person in other.recipients] == ["config:geo.review_recommended"]


def test_no_administrators_leave_one_skipped_slot_to_be_seen() -> None:
    intent = accepted(fields_for("geo.review_recommended"), GalaxyWire.open(CATALOGUE, {}))
    assert intent.recipients == (Recipient(ref="config:geo.review_recommended"),)
    assert intent.channels == ()
    assert intent.skips == {"email": "no administrator address is configured for geo.review_recommended"}


@pytest.mark.req("S1-34")
def test_addresses_of_administrators_are_normalised() -> None:
    assert admin_addresses("t", ["A@x.com", " a@X.com ", "", "b@y.org"]) == ("a@x.com", "b@y.org")
    assert admin_addresses("t", [""]) == ()


@pytest.mark.req("S1-34")
@pytest.mark.parametrize(
    "word",
    [
        "ops",
        "@x.com",
        "ops@",
        "ops@localhost",
        "a b@x.com",
        "ops@x..com",
        "Ops <ops@x.com>",
        "a@b.c\nd",
        "é@x.com",
        "o" * 65 + "@x.com",
        "o@" + "x." * 130 + "com",
        ".o@x.com",
        "ops@-x.com",
        "ops;dev@x.com,y.com",
    ],
)
def test_a_wrong_administrator_is_named(word: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"administrators of geo\.review_recommended: .*is not an email address"
    ):
        GalaxyWire.open(CATALOGUE, {"geo.review_recommended": ["fine@x.com", word]})


@pytest.mark.parametrize("name", ["nowhere", TURN])
def test_administrators_of_a_type_that_has_none_are_a_mistake(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        GalaxyWire.open(CATALOGUE, {name: []})


@pytest.mark.req("S1-38", "S1-44", "S1-45")
def test_what_is_optional_may_be_there() -> None:
    payload = payload_for(TURN) | {"weather": ["ion storm", None]}
    fields = fields_for(TURN, payload_json=json.dumps(payload), request_id="r-1", trace_id="t-1", x="y")
    intent = accepted(fields)
    assert (intent.request_id, intent.trace_id) == ("r-1", "t-1")
    assert intent.payload == payload
    plain = accepted(fields_for(TURN, request_id=""))
    assert (plain.request_id, plain.trace_id) == (None, None)


@pytest.mark.req("S1-44", "S1-45", "S1-49", "S1-50", "S1-51", "S1-52")
@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"recipient_user_ids_json": '[ "user-2", "user-1" ]'}, True),
        ({"request_id": "other", "trace_id": "other"}, True),
        ({"x": "y"}, True),
        ({"occurred_at_ms": "1775121700001"}, False),
        ({"idempotency_key": "other"}, False),
        ({"recipient_user_ids_json": '["user-1"]'}, False),
        ({"payload_json": canonical(payload_for(TURN) | {"more": 54})}, False),
        ({"payload_json": canonical(payload_for(TURN) | {"turn_number": 55})}, False),
    ],
)
def test_what_makes_two_intents_the_same(changes: dict[str, str], same: bool) -> None:  # noqa: FBT001 - a table's column
    first, second = accepted(fields_for(TURN)), accepted(fields_for(TURN, **changes))
    assert (fingerprint(first.content) == fingerprint(second.content)) is same


@pytest.mark.req("S1-48", "S1-49")
@pytest.mark.parametrize(("one", "other"), [("54", "54.0"), ("[1,2]", "[2,1]"), ("1", "true"), ("0", "null")])
def test_kinds_and_order_of_values_count(one: str, other: str) -> None:
    prints = set()
    for more in (one, other):
        text = canonical(payload_for(TURN))[:-1] + f',"more":{more}}}'
        prints.add(fingerprint(accepted(fields_for(TURN, payload_json=text)).content))
    assert len(prints) == 2


words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=20)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


@PROPERTY
@given(
    more=st.dictionaries(words, values, max_size=4),
    users=st.lists(words, min_size=1, max_size=5, unique=True),
    seed=st.integers(0, 999),
    escaped=st.booleans(),
)
@pytest.mark.req("S1-48", "S1-50")
def test_writing_it_differently_changes_nothing(
    more: dict[str, Any],
    users: list[str],
    seed: int,
    escaped: bool,  # noqa: FBT001 - hypothesis names it
) -> None:
    payload = more | payload_for(TURN)
    dice = random.Random(seed)
    shuffled_users, names = dice.sample(users, len(users)), dice.sample(list(payload), len(payload))
    one = fields_for(TURN, payload_json=canonical(payload), recipient_user_ids_json=canonical(users))
    other = fields_for(
        TURN,
        payload_json=json.dumps({name: payload[name] for name in names}, ensure_ascii=escaped, indent=1),
        recipient_user_ids_json=json.dumps(shuffled_users, ensure_ascii=escaped),
    )
    first, second = accepted(one), accepted(other)
    assert fingerprint(first.content) == fingerprint(second.content)
    assert first.recipients == second.recipients
    assert canonical(first.payload) == canonical(second.payload) == canonical(payload)


@PROPERTY
@given(fields=st.dictionaries(st.sampled_from([*envelope.REQUIRED, *envelope.OPTIONAL, "x"]) | st.text(), st.text()))
def test_no_entry_raises(fields: dict[str, str]) -> None:
    assert isinstance(WIRE.decode("1-1", fields), Malformed)


@PROPERTY
@given(name=st.sampled_from([*envelope.REQUIRED, *envelope.OPTIONAL]), value=st.text(max_size=40))
def test_no_single_change_raises(name: str, value: str) -> None:
    read = WIRE.decode("1-1", fields_for(TURN) | {name: value})
    if isinstance(read, Intent):
        canonical(read.content).encode()
