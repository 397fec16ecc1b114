"""Replaying what died, starting without Redis, ending in the middle of work, and the neighbours' side of it all."""

import ast
import asyncio
import json
import re
import subprocess
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from carillon.blueprints import galaxy as blueprint
from carillon.blueprints.galaxy import notification_generated
from scripts.requirements import carried_ids, known_ids
from tests.support.galaxy import CATALOGUE, WAYS, payload_for
from tests.support.galaxy_seen import exit_of, intent, sockets
from tests.support.galaxy_stand import GATEWAY, INTENTS, MAIL, PASSWORD, Galaxy
from tests.support.ports import free_port
from tests.support.process import run_carillon
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

FOLDER = Path(blueprint.__file__).parent


def run(stand: Galaxy, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": "/usr/bin:/bin", **stand.environment()}
    return run_carillon([*arguments], env=env, timeout=60)


def paste(stand: Galaxy, line: str) -> str:
    """What an operator does with the line; returns the new entry's id."""
    typed = ["bash", "-c", f"redis-cli --no-auth-warning -a {PASSWORD} -p {stand.server.port} {line}"]
    return subprocess.run(typed, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


@pytest.mark.req("S1-184", "S1-185", "S1-187")
async def test_a_dead_letter_is_replayed_as_a_new_intent(galaxy: Galaxy) -> None:
    await galaxy.redis.set(GATEWAY, "not a stream")
    galaxy.start(NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS="1")
    first = await galaxy.publish(intent(recipient_user_ids_json='["u"]', idempotency_key="it's mine"))
    await galaxy.row_once("SELECT 1 FROM dead_letters WHERE notification_id = $1", first)
    await galaxy.row_once("SELECT 1 FROM routes WHERE status = 'published'")
    query = (
        "SELECT d, r, n FROM dead_letters d JOIN routes r USING (notification_id, route_id) "
        "JOIN records n USING (notification_id)"
    )
    (before,) = await galaxy.rows(f"{query} WHERE notification_id = $1", first)
    shown = run(galaxy, "galaxy", "dead-letters")
    assert shown.returncode == 0, shown.stderr
    assert "gateway_stream_publish_failed" in shown.stdout
    (line,) = [text for text in shown.stdout.splitlines() if text.startswith("XADD ")]
    await galaxy.redis.delete(GATEWAY)
    second = paste(galaxy, line)
    await galaxy.routes(second, status="published")
    rows = await galaxy.rows("SELECT * FROM records ORDER BY accepted_at")
    old, new = rows
    for name in ("payload_json", "recipient_user_ids", "audience_kind", "notification_type", "producer"):
        assert old[name] == new[name]
    assert old["idempotency_key"] != new["idempotency_key"]
    # The other way would change history, and is refused.
    refused = run(galaxy, "dead-letters", "redrive", "--all", "--blueprint", "galaxy")
    assert refused.returncode != 0
    assert "new intent" in refused.stderr
    (after,) = await galaxy.rows(f"{query} WHERE notification_id = $1", first)
    assert after == before
    (dead,) = await galaxy.rows("SELECT recovery_hint FROM dead_letters")
    assert "redrive" not in dead["recovery_hint"]


@pytest.mark.req("S1-185", "S1-187")
async def test_the_tool_reads_alone(galaxy: Galaxy) -> None:
    said = run(galaxy, "galaxy", "--help").stdout
    assert "dead-letters" in said
    for word in ("redrive", "replay ", "delete", "retry"):
        assert word not in said.lower()


@pytest.mark.req("S1-186")
async def test_the_runbook_tells_what_to_look_at_and_what_to_do() -> None:
    text = (FOLDER / "docs" / "runbook.md").read_text(encoding="utf-8")
    headings = [line.lower() for line in text.splitlines() if line.startswith("#")]
    for word in ("start", "steady", "stop", "incident", "replay"):
        assert any(word in heading for heading in headings), word
    steps = text.partition("## Replaying")[2].lower()
    places = [
        steps.index(word)
        for word in ("list the dead letters, each with its route and its record", "repaired", "xadd", "leave")
    ]
    assert places == sorted(places)
    for name in re.findall(r"`(notification\.[a-z_.]+)`", text):
        assert f'"{name}"' in (FOLDER / "blueprint.toml").read_text(encoding="utf-8"), name


@pytest.mark.req("S1-188")
async def test_without_redis_there_is_no_start(galaxy: Galaxy) -> None:
    address = f"127.0.0.1:{free_port()}"
    began = time.monotonic()
    galaxy.start()
    usual = time.monotonic() - began
    code, said = exit_of(galaxy.launch(NOTIFICATION_REDIS_MASTER_ADDR=address))
    # Besides what any start takes on this machine.
    assert time.monotonic() - began < 2 * usual + 30
    assert code not in {0, None}
    assert address in said
    assert "http started" not in said
    code, said = exit_of(galaxy.launch(NOTIFICATION_REDIS_PASSWORD="wrong-one"))
    assert code not in {0, None}
    assert "wrong-one" not in said


@pytest.mark.req("S1-189", "S1-65", "S1-66")
async def test_an_end_in_the_middle_of_work_leaves_nothing_behind(galaxy: Galaxy) -> None:
    program = galaxy.start()
    async with galaxy.redis.pipeline() as pipe:
        for _ in range(400):
            pipe.xadd(INTENTS, intent())
        ids = [entry_id.decode() for entry_id in await pipe.execute()]
    await galaxy.published(MAIL, 20)
    program.terminate()
    assert await asyncio.to_thread(program.wait) == 0
    assert not await galaxy.redis.keys("notification:route_leases:*")
    assert not await galaxy.redis.keys("notification:stream_leases:*")
    stopped = [line["part"] for line in program.events("part_stopped")]
    assert stopped[0] == "http"
    assert {"intent_consumer", "push_publisher", "email_publisher"} <= set(stopped)
    again = galaxy.start()
    assert sockets(again.pid)[0]

    async def finished() -> bool:
        (row,) = await galaxy.rows("SELECT count(*) AS n FROM routes WHERE status = 'published'")
        return bool(row["n"] == 1600)

    await until(finished, timeout=60, what="every route published")
    await galaxy.offset_reaches(ids[-1])
    sent = [fields["delivery_id"] for _, fields in await galaxy.published(MAIL, 800)]
    assert len(sent) == len(set(sent)) == 800


class Gateway:
    """A gateway that has open sessions and hands every event of a user to all of them."""

    def __init__(self, sessions: dict[str, list[str]]) -> None:
        self._sessions = sessions
        self.received: defaultdict[str, list[tuple[str, dict[str, Any]]]] = defaultdict(list)

    def take(self, event: dict[str, Any]) -> None:
        name = event["event_type"]
        table = CATALOGUE.types[name].push
        assert table is not None
        root = getattr(notification_generated, table.table).GetRootAs(event["payload_bytes"], 0)
        read = {
            slot.name: getattr(root, "".join(word.capitalize() for word in slot.name.split("_")))()
            for slot in table.fields
        }
        plain = {field: value.decode() if isinstance(value, bytes) else value for field, value in read.items()}
        target = event.get("device_session_id")
        for session in [target] if target else self._sessions[event["user_id"]]:
            self.received[session].append((name, plain))


def mail_text(command: dict[str, Any]) -> str:
    """What a mail service renders: its template of that id and locale, with these variables."""
    folder = FOLDER / "templates" / command["template_id"] / command["locale"]
    text = "\n".join((folder / f"{part}.tmpl").read_text(encoding="utf-8") for part in ("subject", "text"))
    for name, value in command["variables"].items():
        text = text.replace(f"{{{{{name}}}}}", str(value))
    return text


@pytest.mark.req("S1-191", "S1-129", "S1-152")
async def test_gateway_and_mail_understand_every_type(running: Galaxy) -> None:
    ids = {await running.publish(intent(name, kind)): (name, kind) for name, kind in WAYS}
    for entry_id in ids:
        await running.routes(entry_id, status="published")
    gateway = Gateway({"user-1": ["phone", "desk"], "user-2": ["tablet"]})
    for _, event in await running.published(GATEWAY, 20):
        gateway.take(event)
    pushed = {name for name, kind in WAYS if kind == "user" and CATALOGUE.types[name].push is not None}
    for session in ("phone", "desk", "tablet"):
        assert {name for name, _ in gateway.received[session]} == pushed
        for name, event in gateway.received[session]:
            assert event.items() <= payload_for(name).items()
    mailed: defaultdict[str, set[str]] = defaultdict(set)
    for _, fields in await running.published(MAIL, 28):
        command = json.loads(fields["payload_json"])
        text = mail_text(command)
        assert "{{" not in text, text
        assert str(next(iter(command["variables"].values()))) in text or command["variables"]["game_name"] in text
        mailed[command["template_id"]].add(command["to"][0])
    assert set(mailed) == {name for name, _ in WAYS}
    assert mailed["lobby.application.submitted"] == {"user-1@example.com", "user-2@example.com", "ops@example.com"}
    # A login code goes from the auth service to the mail service, past here.
    bypass = {"delivery_id": "auth/1", "source": "auth", "payload_json": '{"template_id":"auth.login_code"}'}
    own = await running.redis.xadd(MAIL, bypass)
    entry = {**intent(), "notification_type": "auth.login_code", "producer": "auth"}
    await running.malformed(await running.publish(entry))
    codes = [one for one, fields in await running.published(MAIL, 29) if "auth.login_code" in fields["payload_json"]]
    assert codes == [own.decode()]


VERIFIED = {
    "configuration loading and validation": "config::test_what_is_missing_forbidden_or_nonsense_ends_the_start",
    "both probes": "probes::test_both_probes_answer_exactly",
    "absence of /metrics": "probes::test_there_is_nothing_else",
    "Redis startup fast-fail": "recovery::test_without_redis_there_is_no_start",
    "graceful shutdown": "recovery::test_an_end_in_the_middle_of_work_leaves_nothing_behind",
    "valid intent acceptance": "publishing::test_one_intent_end_to_end",
    "malformed intent rejection": "malformed::test_a_malformed_entry_is_kept_whole_and_told",
    "duplicates": "duplicates::test_a_repeat_is_a_success_without_a_trace",
    "conflicting duplicates": "duplicates::test_one_key_for_something_else_is_a_conflict",
    "enrichment": "enrichment::test_each_recipient_is_asked_about_once_with_an_escaped_id",
    "recipient_not_found": "enrichment::test_one_missing_person_leaves_no_row_at_all",
    "temporary failure": "consumer::test_a_user_service_in_trouble_stops_the_stream_and_nothing_else",
    "FlatBuffers of all types": "push::test_every_table",
    "mail commands for users": "mail::test_a_command_for_a_user",
    "mail commands for administrators": "mail::test_every_address_has_its_own_command",
    "lease acquisition": "publishing::test_the_lease_of_the_document",
    "retry reschedule": "retries::test_the_waits_of_the_document_to_the_microsecond",
    "dead-letter persistence": "retries::test_both_budgets_are_spent_and_no_more",
    "duplicate prevention across replicas": "publishing::test_three_replicas_publish_each_route_once",
    "metrics": "observability::test_names_and_attributes_are_exactly_those",
    "route-schedule snapshots": "observability::test_the_schedule",
    "intent-stream lag": "observability::test_the_lag_of_the_stream",
    "log fields": "observability::test_log_lines_name_what_they_are_about",
    "restart from 0-0 and from the offset": "consumer::test_from_the_beginning_and_then_from_where_it_was",
    "runtime wiring": "boundaries::test_one_process_says_which_parts_it_has",
    "producer module": "producer::test_every_type_there_and_back",
    "all three producers": "producer::test_every_type_there_and_back",
    "loading of due routes": "routes::test_what_a_new_route_looks_like",
    "the email worker's retries": "retries::test_both_budgets_are_spent_and_no_more",
    "the user service's failures": "config::test_the_user_service_has_a_second",
    "gateway and mail for every type": "recovery::test_gateway_and_mail_understand_every_type",
    "login codes bypass": "boundaries::test_login_codes_do_not_pass_here",
}
"""The document's list of what has to be verified, and the black-box test that does it."""


@pytest.mark.req("S1-190", "S1-191")
@pytest.mark.parametrize("claim", VERIFIED)
async def test_each_line_of_the_documents_list_has_its_black_box_test(claim: str) -> None:
    file, _, name = VERIFIED[claim].partition("::")
    tree = ast.parse((Path(__file__).parent / f"test_galaxy_{file}.py").read_text())
    tests = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    marks = [ast.unparse(mark) for mark in tests[name].decorator_list]
    assert any(".req(" in mark for mark in marks), "it proves something by its id"
    assert not [mark for mark in marks if "skip" in mark or "xfail" in mark]
    given = {argument.arg for argument in tests[name].args.args}
    # Its own process or the shared one: nothing of the service is called from inside.
    assert given & {"galaxy", "running", "watched"} or "producer" in file, given


@pytest.mark.req("S1-190", "S1-191")
async def test_every_requirement_of_this_document_has_a_test() -> None:
    carried = carried_ids()
    assert [name for name in known_ids() if name.startswith("S1-") and name not in carried] == []
    outside = {name for name, places in carried.items() if any("scenario/test_galaxy" in place for place in places)}
    assert [name for name in known_ids() if name.startswith("S1-") and name not in outside] == []
