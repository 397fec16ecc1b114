"""The catalogue says what the galaxy blueprint says, takes entries of a user's own, and refuses what could not work."""

import re
from pathlib import Path

import pytest

from carillon.blueprints.galaxy.catalogue import SHIPPED, read
from carillon.domain.errors import ConfigurationError

BOTH = ("push", "email")
EMAIL = ("email",)
GAME = ("game_id", "game_name")

# The document's table: producer, channels by audience, required payload fields.
TABLE: dict[str, tuple[str, dict[str, tuple[str, ...]], tuple[str, ...]]] = {
    "geo.review_recommended": (
        "geoprofile",
        {"admin_email": EMAIL},
        ("user_id", "user_email", "observed_country", "usual_connection_country", "review_reason"),
    ),
    "game.turn.ready": ("game_master", {"user": BOTH}, (*GAME, "turn_number")),
    "game.finished": ("game_master", {"user": BOTH}, (*GAME, "final_turn_number")),
    "game.generation_failed": ("game_master", {"admin_email": EMAIL}, (*GAME, "failure_reason")),
    "lobby.runtime_paused_after_start": ("game_lobby", {"admin_email": EMAIL}, GAME),
    "lobby.application.submitted": (
        "game_lobby",
        {"user": BOTH, "admin_email": EMAIL},
        (*GAME, "applicant_user_id", "applicant_name"),
    ),
    "lobby.membership.approved": ("game_lobby", {"user": BOTH}, GAME),
    "lobby.membership.rejected": ("game_lobby", {"user": BOTH}, GAME),
    "lobby.membership.blocked": (
        "game_lobby",
        {"user": BOTH},
        (*GAME, "membership_user_id", "membership_user_name", "reason"),
    ),
    "lobby.invite.created": ("game_lobby", {"user": BOTH}, (*GAME, "inviter_user_id", "inviter_name")),
    "lobby.invite.redeemed": ("game_lobby", {"user": BOTH}, (*GAME, "invitee_user_id", "invitee_name")),
    "lobby.invite.expired": ("game_lobby", {"user": EMAIL}, (*GAME, "invitee_user_id", "invitee_name")),
    "lobby.race_name.registration_eligible": ("game_lobby", {"user": BOTH}, (*GAME, "race_name", "eligible_until_ms")),
    "lobby.race_name.registered": ("game_lobby", {"user": BOTH}, ("race_name",)),
    "lobby.race_name.registration_denied": ("game_lobby", {"user": EMAIL}, (*GAME, "race_name", "reason")),
}
INTEGERS = {"turn_number", "final_turn_number", "eligible_until_ms"}

GOOD = """
[types."fleet.launched"]
producer = "fleet_yard"
audiences = { user = ["push", "email"] }
required = { fleet_id = "string", ships = "integer" }
[types."fleet.launched".push]
table = "FleetLaunchedEvent"
fields = [{ name = "fleet_id", kind = "string" }, { name = "ships", kind = "int64" }]
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "mine.toml"
    file.write_text(text)
    return file


@pytest.mark.req("S1-71", "S1-72", "S1-73", "S1-74", "S1-75", "S1-76", "S1-77", "S1-78")
@pytest.mark.req("S1-79", "S1-80", "S1-81", "S1-82", "S1-83", "S1-84", "S1-85")
def test_the_fifteen_types_are_the_documents() -> None:
    found = {name: (entry.producer, entry.audiences, tuple(entry.required)) for name, entry in read().types.items()}
    assert found == TABLE


@pytest.mark.req("S1-43")
def test_numbers_are_integers_and_everything_else_is_text() -> None:
    kinds = {kind for entry in read().types.values() for kind in entry.required.items()}
    assert {name for name, kind in kinds if kind == "integer"} == INTEGERS


@pytest.mark.req("S1-04", "S1-86")
def test_login_codes_and_revoked_invites_are_no_types_of_ours() -> None:
    assert not {"auth.login_code", "lobby.invite.revoked"} & set(read().types)


def test_a_sixteenth_type_is_an_entry(tmp_path: Path) -> None:
    types = read(written(tmp_path, GOOD)).types
    assert set(types) == {*TABLE, "fleet.launched"}
    assert types["fleet.launched"].push is not None


def test_an_entry_replaces_the_shipped_one_whole(tmp_path: Path) -> None:
    text = '[types."lobby.invite.expired"]\nproducer = "lobby2"\naudiences = { user = ["email"] }\nrequired = {}\n'
    entry = read(written(tmp_path, text)).types["lobby.invite.expired"]
    assert (entry.producer, entry.required) == ("lobby2", {})


def change(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (change("fleet.launched", "Fleet Launched"), "lower-case words"),
        (change('"fleet_yard"', '""'), "producer must be one word"),
        (change('["push", "email"]', "[]"), "at least one"),
        (change('["push", "email"]', '["push", "push"]'), "name each channel once"),
        (change('["push", "email"]', '["push", "fax"]'), "fax"),
        (change("{ user = ", "{ admin_email = "), "push cannot reach them"),
        (change("{ user = ", "{ nobody = "), "nobody"),
        (change('{ user = ["push", "email"] }', "{}"), "at least one of user, admin_email"),
        (change('["push", "email"]', '["email"]'), "a push table belongs to"),
        (GOOD.partition('[types."fleet.launched".push]')[0], "a push table belongs to"),
        (change('ships = "integer"', 'ships = "float"'), "float"),
        (change('ships = "integer"', '"ships of" = "integer"'), "no name a template could ask for"),
        (
            change('name = "ships", kind = "int64"', 'name = "boats", kind = "int64"'),
            "boats must be a required integer",
        ),
        (change('name = "ships", kind = "int64"', 'name = "ships", kind = "string"'), "required string"),
        (change('name = "ships", kind = "int64"', 'name = "fleet_id", kind = "string"'), "each named once"),
        (change('kind = "int64"', 'kind = "int32"'), "int32"),
        (change('"FleetLaunchedEvent"', '"GameTurnReadyEvent"'), "already game.turn.ready's"),
        (change('producer = "fleet_yard"', 'producer = "fleet_yard"\ncolour = "red"'), "colour"),
        ("[types", "Expected"),
        ("[kinds]", "kinds"),
    ],
)
def test_what_could_not_work_is_refused_by_name(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(words)) as refused:
        read(written(tmp_path, text))
    assert "mine.toml" in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nowhere"):
        read(tmp_path / "nowhere.toml")


def test_the_shipped_file_is_the_one_beside_the_code() -> None:
    assert SHIPPED.name == "catalogue.toml"
    assert SHIPPED.exists()
