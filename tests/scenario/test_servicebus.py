"""listo with Azure Service Bus as a door and an alert sink: the whole program from outside."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from proton import Message

from tests.support.listo_stand import DOWN, EMAIL, Listo
from tests.support.process import carillon_command
from tests.support.servicebus import Bus
from tests.support.waiting import wait_until

QUEUE, TOPIC = "requests", "listo-notifications-alerts"
SETTINGS = f'[servicebus_door]\nqueue = "{QUEUE}"\n[alerts]\nsinks = ["servicebus"]\n'


@pytest.fixture(scope="module")
def bus() -> Bus:
    found = Bus()
    found.create(QUEUE, TOPIC)
    return found


@pytest.fixture(scope="module")
def listo(bus: Bus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listo]:
    folder = tmp_path_factory.mktemp("listo")
    settings = SETTINGS + '[policy.retry."*/email"]\nmax_attempts = 1\n'
    url = f"sqlite:///{folder}/listo.db"
    with Listo(folder, url, settings, SERVICEBUS_CONNECTION_STRING=bus.connection) as found:
        found.start()
        yield found


def request(key: str, **fields: Any) -> Message:
    body = {"templateKey": "order_confirmed", "channel": "email", "recipient": EMAIL, **fields}
    return Message(body=json.dumps(body).encode(), inferred=True, id=key)


def health(listo: Listo) -> Any:
    return listo.client.get("/health").body


def carillon(*words: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "CARILLON_ALLOW_SANDBOX": "1", **environment}
    return subprocess.run(
        [*carillon_command(), *words], env=env, cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.req("X2-6", "S2-23")
def test_a_program_starts_without_its_bus_and_reads_when_it_comes(listo: Listo, bus: Bus) -> None:
    assert listo.send().status == 202, "HTTP does not wait for the bus"
    listo.programs[-1].wait_for("trouble", lambda line: bool(line["where"] == "servicebus_door"))
    assert health(listo)["status"] == "degraded"
    bus.come()
    listo.programs[-1].wait_for("part_started", lambda line: bool(line["part"] == "servicebus_door"))
    ranks: dict[str, tuple[dict[str, Any], int]] = {
        "standard": ({}, 2),
        "priority": ({"priority": "high"}, 1),
        "bulk": ({"isBulk": True}, 3),
    }
    bus.publish(QUEUE, *(request(key, **fields) for key, (fields, _) in ranks.items()))
    lanes = "SELECT idempotency_key, lane, status FROM records JOIN routes USING (notification_id)"
    listo.until_rows(lanes, lambda rows: sum(row["status"] == "published" for row in rows) == len(ranks) + 1)
    assert {row["idempotency_key"]: row["lane"] for row in listo.rows(lanes) if row["idempotency_key"]} == {
        key: lane for key, (_, lane) in ranks.items()
    }
    wait_until(lambda: health(listo)["status"] != "degraded", timeout=20, what="a healthy program")
    assert bus.waiting(QUEUE) == 0


@pytest.mark.req("X2-6", "S2-119", "S2-120")
def test_a_dead_letter_becomes_one_message_of_the_topic(listo: Listo, bus: Bus) -> None:
    listo.sendgrid.answer(*[DOWN] * 5)
    listo.acs.answer(*[DOWN] * 5)
    bus.publish(QUEUE, request("fails", userId="user-7"), Message(body=b"not json", inferred=True, id="poison"))
    wait_until(lambda: bus.waiting(TOPIC) == 1, timeout=40, what="an alert")
    listo.up()
    (message,) = bus.messages(TOPIC)
    alert = json.loads(bytes(cast("bytes", message.body)))
    assert (alert["eventType"], alert["userId"], alert["channel"]) == ("NotificationFailed", "user-7", "email")
    assert (message.subject, message.id, message.content_type) == (
        "NotificationFailed",
        str(alert["alertId"]),
        "application/json",
    )
    wait_until(lambda: len(bus.dead(QUEUE)) == 1, timeout=20, what="a dead letter of the bus")
    assert bus.dead(QUEUE)[0].why["DeadLetterReason"] == "VALIDATION_ERROR"


@pytest.mark.req("X2-6")
def test_the_doctor_the_settings_and_a_process_without_the_role(listo: Listo, bus: Bus) -> None:
    given = {**listo.contract(), "SERVICEBUS_CONNECTION_STRING": bus.connection}
    config = ("--config", str(listo.folder / "listo.toml"))
    said = carillon("doctor", *config, folder=listo.folder, **given)
    assert f"Service Bus: {QUEUE}: empty" in said.stdout, said.stdout + said.stderr
    shown = carillon("config", "show", *config, folder=listo.folder, **given)
    assert "SharedAccessKey" not in shown.stdout + shown.stderr
    assert "********" in shown.stdout
    broken = carillon("doctor", *config, folder=listo.folder, **{**given, "SERVICEBUS_CONNECTION_STRING": "nonsense"})
    assert broken.returncode != 0
    assert "servicebus_door.connection_string" in broken.stdout + broken.stderr


@pytest.mark.req("X2-6")
def test_the_end_is_clean_and_silent_and_gives_nothing_up(listo: Listo, bus: Bus) -> None:
    program = listo.programs[-1]
    before = program.mark()
    program.terminate()
    assert program.wait(30) == 0
    assert [line for line in program.lines[before:] if line.get("level") in {"warning", "error"}] == []
    bus.publish(QUEUE, request("later"))
    worker = listo.start("--roles", "outbound,upkeep")
    worker.wait_ready()
    assert not [line for line in worker.events("part_started") if line["part"] == "servicebus_door"]
    assert (bus.waiting(QUEUE), bus.locked(QUEUE)) == (1, 0)
    bus.leave()
