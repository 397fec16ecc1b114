"""What the galaxy blueprint says the service is not: no other tables, no other callers, no other listener."""

import json

import pytest

from tests.support.galaxy_seen import intent, sockets
from tests.support.galaxy_stand import MAIL, USERS_PATH, Galaxy
from tests.support.http_client import Client

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.req("S1-01", "S1-05")
async def test_only_what_the_document_keeps_is_kept(running: Galaxy) -> None:
    entry_id = await running.publish(intent())
    await running.routes(entry_id, status="published")
    tables = await running.rows(
        "SELECT table_name FROM information_schema.tables "
        "WHERE table_schema = 'notification' AND table_type = 'BASE TABLE'"
    )
    names = {row["table_name"] for row in tables}
    documents = {"records", "routes", "dead_letters", "malformed_intents"}
    bookkeeping = {"schema_migrations", "schema_parts"}
    engine = {"attempts", "collapses", "erasures", "outbox", "seal_keys", "slots", "suppressions", "targets"}
    engine |= {"due", "leases"}
    assert names == documents | bookkeeping | engine
    # What the document does not name belongs to the engine and stays empty.
    for name in engine:
        found = await running.rows(f'SELECT 1 FROM "{name}" LIMIT 1')  # noqa: S608 - names of information_schema
        assert not found, name
    columns = await running.rows(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = 'notification'"
    )
    strangers = ("game", "lobby", "member", "invite", "review", "preference", "opt")
    assert not [row for row in columns if any(word in row["column_name"] for word in strangers)]


@pytest.mark.req("S1-02", "S1-03")
async def test_nobody_but_the_user_service_is_asked_and_only_about_recipients(running: Galaxy) -> None:
    asked_before = len(running.users.asked)
    payload = json.dumps({"game_id": "game-9", "game_name": "Orbit", "turn_number": 3})
    one = await running.publish(intent(payload_json=payload, recipient_user_ids_json='["solo"]'))
    two = await running.publish(intent("game.generation_failed"))
    routes = await running.routes(one, status="published")
    assert {row["recipient_ref"] for row in routes.values()} == {"user:solo"}
    administrators = await running.routes(two, status="published")
    assert {row["recipient_ref"] for row in administrators.values()} == {"email:ops@example.com"}
    assert running.users.asked[asked_before:] == ["solo"]
    assert {(entry["method"], entry["path"].startswith(USERS_PATH)) for entry in running.users.entries} == {
        ("GET", True)
    }
    database = int(running.dsn.rpartition(":")[2].partition("/")[0])
    _, connected = sockets(running.programs[0].pid)
    assert connected <= {running.server.port, database, running.users.port}


@pytest.mark.req("S1-04")
async def test_login_codes_do_not_pass_here(running: Galaxy) -> None:
    fields = {**intent(), "notification_type": "auth.login_code", "producer": "auth"}
    row = await running.malformed(await running.publish(fields))
    assert row["failure_code"] == "unsupported_notification_type"
    mailed = [fields for _, fields in await running.published(MAIL, 0)]
    assert not [fields for fields in mailed if "auth.login_code" in fields["payload_json"]]


@pytest.mark.req("S1-06")
async def test_one_listener_and_two_routes(running: Galaxy) -> None:
    listening, connected = sockets(running.programs[0].pid)
    assert listening == {running.port}
    assert not connected & {25, 465, 587}
    client = Client(running.address)
    assert client.get("/healthz").status == client.get("/readyz").status == 200
    elsewhere = ("/", "/metrics", "/docs", "/openapi.json", "/api/v1/notifications", "/health", "/api/v1/dead-letters")
    assert {client.get(path).status for path in elsewhere} == {404}
    assert client.post("/api/v1/notifications/send", {}).status == 404


@pytest.mark.req("S1-07")
async def test_an_address_among_the_recipients_is_a_user_id_like_any_other(running: Galaxy) -> None:
    running.users.people["a@b.c"] = None
    entry_id = await running.publish(intent("lobby.invite.created", recipient_user_ids_json='["a@b.c"]'))
    row = await running.malformed(entry_id)
    assert row["failure_code"] == "recipient_not_found"
    assert running.users.asked[-1] == "a@b.c"
    assert running.users.entries[-1]["path"] == f"{USERS_PATH}a%40b.c"
    known = {"email": "real@example.com", "preferred_language": "en"}
    running.users.people["a@b.c"] = known
    entry_id = await running.publish(intent("lobby.invite.created", recipient_user_ids_json='["a@b.c"]'))
    routes = await running.routes(entry_id, status="published")
    assert routes["email:user:a@b.c"]["resolved_email"] == "real@example.com"


@pytest.mark.req("S1-08")
async def test_one_process_says_which_parts_it_has(running: Galaxy) -> None:
    program = running.programs[0]
    parts = [line["part"] for line in program.events("part_started")]
    for part in ("redis_client", "directory_client", "intent_consumer", "push_publisher", "email_publisher"):
        assert parts.count(part) == 1, part
    assert {"http", "retention_worker"} <= set(parts)
    # Hints of how to send over HTTP would be untrue here.
    assert set(program.wait_ready()) & {"send", "see", "docs"} == set()
