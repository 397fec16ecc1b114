"""What the User Service is asked and what becomes of its answers."""

import json
from typing import Any

import pytest

from tests.support.galaxy_seen import intent
from tests.support.galaxy_stand import MAIL, USERS_PATH, Galaxy
from tests.support.vendor import Reply

pytestmark = pytest.mark.asyncio(loop_scope="module")


def to(*users: str) -> str:
    return json.dumps(users)


@pytest.mark.req("S1-90")
async def test_each_recipient_is_asked_about_once_with_an_escaped_id(running: Galaxy) -> None:
    strange = "a/b c?d#e%é"
    before = len(running.users.entries)
    entry_id = await running.publish(intent(recipient_user_ids_json=to("plain", strange)))
    await running.routes(entry_id, status="published")
    asked = running.users.entries[before:]
    assert sorted(entry["path"] for entry in asked) == [
        f"{USERS_PATH}a%2Fb%20c%3Fd%23e%25%C3%A9",
        f"{USERS_PATH}plain",
    ]
    assert {entry["method"] for entry in asked} == {"GET"}


@pytest.mark.req("S1-90", "S1-92", "S1-99")
async def test_one_missing_person_leaves_no_row_at_all(running: Galaxy) -> None:
    running.users.people["gone"] = None
    entry_id = await running.publish(intent(recipient_user_ids_json=to("here", "gone")))
    row = await running.malformed(entry_id)
    assert row["failure_code"] == "recipient_not_found"
    assert "gone" in row["failure_message"]
    await running.offset_reaches(entry_id)
    for table in ("records", "routes"):
        assert not await running.rows(f"SELECT 1 FROM {table} WHERE notification_id = $1", entry_id)  # noqa: S608 - two names


@pytest.mark.req("S1-90")
async def test_nothing_is_written_before_everybody_is_known(galaxy: Galaxy) -> None:
    galaxy.users.answer(Reply(503), path=f"{USERS_PATH}user-2")
    program = galaxy.start()
    entry_id = await galaxy.publish(intent())
    await program.until("door_stopped")
    await galaxy.routes(entry_id, status="published")
    (row,) = await galaxy.rows("SELECT count(*) AS n FROM routes")
    assert row["n"] == 4


SHAPES: dict[str, dict[str, Any]] = {
    "top": {"email": "p@example.com", "preferred_language": "en"},
    "under-user": {"user": {"email": "p@example.com", "preferred_language": "en", "id": "x"}},
    "under-account": {"account": {"email": "p@example.com", "preferred_language": "en"}, "more": [1]},
}


@pytest.mark.req("S1-91")
@pytest.mark.parametrize("shape", SHAPES)
async def test_the_three_shapes_of_an_answer(running: Galaxy, shape: str) -> None:
    running.users.people[shape] = SHAPES[shape]
    routes = await running.routes(await running.publish(intent(recipient_user_ids_json=to(shape))), status="published")
    assert routes[f"email:user:{shape}"]["resolved_email"] == "p@example.com"


@pytest.mark.req("S1-92", "S1-93")
async def test_only_a_404_that_says_so_is_nobody(running: Galaxy) -> None:
    program, mark = running.programs[0], running.programs[0].mark()
    others = {"error": {"code": "route_not_found", "message": "no such path"}}
    for reply in (Reply(404), Reply(404, body="not found"), Reply(404, body=others)):
        running.users.answer(reply, path=f"{USERS_PATH}lost")
    before = await running.publish(intent())
    await running.offset_reaches(before)
    entry_id = await running.publish(intent(recipient_user_ids_json=to("lost")))
    stopped = await program.until("door_stopped", since=mark)
    assert stopped["stream_entry_id"] == entry_id
    # Three such answers, then a person: had one of them counted, there would be no routes.
    await running.routes(entry_id, status="published")
    assert not await running.rows("SELECT 1 FROM malformed_intents WHERE stream_entry_id = $1", entry_id)
    assert running.users.asked.count("lost") == 4


@pytest.mark.req("S1-94")
@pytest.mark.parametrize("email", ["", "no address", "a@", None, 7, "two@example.com,three@example.com"])
async def test_somebody_without_an_address_is_still_pushed_to(running: Galaxy, email: object) -> None:
    user_id = f"mute {email}"
    running.users.people[user_id] = {"email": email, "preferred_language": "en"}
    entry_id = await running.publish(intent(recipient_user_ids_json=to(user_id)))
    routes = await running.routes(entry_id, status="published")
    mail = routes[f"email:user:{user_id}"]
    assert (mail["status"], routes[f"push:user:{user_id}"]["status"]) == ("skipped", "published")
    assert "address" in mail["last_error_message"]
    assert mail["skipped_at"] is not None


@pytest.mark.req("S1-95", "S1-97")
@pytest.mark.parametrize("language", ["en", "fr-FR", "", "EN-us", "not a language", None, 5, "en-US"])
async def test_what_is_not_supported_is_english(running: Galaxy, language: object) -> None:
    user_id = f"speaks {language}"
    running.users.people[user_id] = {"email": "p@example.com", "preferred_language": language}
    entry_id = await running.publish(intent(recipient_user_ids_json=to(user_id)))
    routes = await running.routes(entry_id, status="published")
    assert [row["resolved_locale"] for row in routes.values()] == ["en", "en"]


@pytest.mark.req("S1-95", "S1-96", "S1-97")
async def test_an_exact_match_or_english(galaxy: Galaxy) -> None:
    languages = {"a": "pt", "b": "pt-BR", "c": "en", "d": "de"}
    for user_id, language in languages.items():
        galaxy.users.people[user_id] = {"email": f"{user_id}@example.com", "preferred_language": language}
    galaxy.start(CARILLON_LOCALE__SUPPORTED="en,pt")
    entry_id = await galaxy.publish(intent(recipient_user_ids_json=to(*languages)))
    routes = await galaxy.routes(entry_id, status="published")
    chosen = {route_id: row["resolved_locale"] for route_id, row in routes.items()}
    for channel in ("push", "email"):
        assert [chosen[f"{channel}:user:{user_id}"] for user_id in languages] == ["pt", "en", "en", "en"]
    mails = [json.loads(fields["payload_json"]) for _, fields in await galaxy.published(MAIL, 4)]
    assert {mail["to"][0]: mail["locale"] for mail in mails}["a@example.com"] == "pt"


@pytest.mark.req("S1-98")
async def test_administrators_are_never_looked_up(running: Galaxy) -> None:
    before = len(running.users.entries)
    names = ("geo.review_recommended", "game.generation_failed", "lobby.runtime_paused_after_start")
    ids = [await running.publish(intent(name)) for name in names]
    ids.append(await running.publish(intent("lobby.application.submitted", "admin_email")))
    for entry_id in ids:
        routes = await running.routes(entry_id, status="published")
        assert routes["email:email:ops@example.com"]["resolved_locale"] == "en"
    assert len(running.users.entries) == before
