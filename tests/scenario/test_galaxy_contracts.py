"""The contract files of the galaxy blueprint are true: their examples pass schemas, our decoder and our encoders."""

import asyncio
import base64
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import redis
import yaml

from carillon.blueprints.galaxy import catalogue
from carillon.blueprints.galaxy.wire import GalaxyWire
from carillon.domain.intents import Intent, Malformed
from tests.support import docs_pages
from tests.support.galaxy import CATALOGUE, PUSHED, TYPES, WAYS, claim_for
from tests.support.galaxy_stand import GATEWAY, PASSWORD, Galaxy
from tests.support.process import run_carillon

FOLDER = catalogue.SHIPPED.parent
ASYNC_API: dict[str, Any] = yaml.safe_load((FOLDER / "api" / "intents-asyncapi.yaml").read_text())
OPEN_API: dict[str, Any] = yaml.safe_load((FOLDER / "openapi.yaml").read_text())
PAGES = sorted((FOLDER / "docs").glob("*.md"))
EXAMPLES = FOLDER / "docs" / "examples.md"
WIRE = GalaxyWire.open(CATALOGUE, {})
INSIDE = "x-contentSchema"


def resolved(node: Any, document: dict[str, Any]) -> Any:
    """The node with every reference put in its place."""
    if isinstance(node, list):
        return [resolved(inner, document) for inner in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        target: Any = document
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        return resolved(target, document)
    return {name: resolved(inner, document) for name, inner in node.items()}


def messages(channel: str) -> dict[str, dict[str, Any]]:
    found = resolved(ASYNC_API["channels"][channel]["messages"], ASYNC_API)
    return {message["name"]: message for message in found.values()}


def problems(schema: Any, fields: dict[str, str]) -> list[str]:
    """What is wrong with an entry: in its fields, and in the JSON inside them."""
    found = [str(error.message) for error in jsonschema_rs.validator_for(schema).iter_errors(fields)]
    for name, inside in inner_schemas(schema):
        if name in fields:
            checker = jsonschema_rs.validator_for(inside)
            found += [f"{name}: {error.message}" for error in checker.iter_errors(json.loads(fields[name]))]
    return found


def inner_schemas(schema: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(schema, dict):
        for name, part in schema.get("properties", {}).items():
            if INSIDE in part:
                yield name, part[INSIDE]
        for alternative in (*schema.get("allOf", []), *schema.get("oneOf", [])):
            yield from inner_schemas(alternative)


INTENTS = [
    pytest.param(message["payload"], example["payload"], id=example["name"])
    for message in messages("intents").values()
    for example in message["examples"]
]


@pytest.mark.req("S1-89", "S1-183")
@pytest.mark.parametrize(("schema", "fields"), INTENTS)
def test_an_intent_example_is_valid_and_accepted(schema: Any, fields: dict[str, str]) -> None:
    assert not problems(schema, fields)
    assert isinstance(WIRE.decode("1-0", fields), Intent)


@pytest.mark.req("S1-89")
@pytest.mark.parametrize(("schema", "fields"), INTENTS)
def test_schema_and_decoder_refuse_the_same(schema: Any, fields: dict[str, str]) -> None:
    required = CATALOGUE.types[fields["notification_type"]].required
    payload = json.loads(fields["payload_json"])
    wrong: list[dict[str, str]] = [
        {name: value for name, value in fields.items() if name != missing}
        for missing in fields
        if missing not in {"request_id", "trace_id"}
    ]
    wrong += [fields | {name: ""} for name in ("idempotency_key", "occurred_at_ms")]
    wrong += [fields | {"producer": "stranger"}, fields | {"audience_kind": "nobody"}]
    wrong += [fields | {"idempotency_key": "k" * 513}, fields | {"occurred_at_ms": "soon"}]
    for name, kind in required.items():
        less = {key: value for key, value in payload.items() if key != name}
        bad = less | {name: "" if kind == "string" else -1}
        wrong += [fields | {"payload_json": json.dumps(less)}, fields | {"payload_json": json.dumps(bad)}]
    wrong += [fields | {"recipient_user_ids_json": text} for text in ("[]", '["u","u"]', "[1]", '[""]')]
    for entry in wrong:
        assert problems(schema, entry), entry
        assert isinstance(WIRE.decode("1-0", entry), Malformed), entry


@pytest.mark.req("S1-89", "S1-86")
def test_every_type_and_audience_has_an_example_and_no_other_has() -> None:
    known = messages("intents")
    assert sorted(known) == TYPES
    examples = [example["payload"] for message in known.values() for example in message["examples"]]
    assert sorted((each["notification_type"], each["audience_kind"]) for each in examples) == sorted(WAYS)
    for name, message in known.items():
        (payload,) = [schema for field, schema in inner_schemas(message["payload"]) if field == "payload_json"]
        kinds = {field: schema["type"] for field, schema in payload["properties"].items()}
        assert kinds == CATALOGUE.types[name].required
        assert payload["required"] == list(CATALOGUE.types[name].required)


@pytest.mark.req("S1-89", "S1-128")
def test_client_events_are_what_we_write() -> None:
    ((_, message),) = messages("clientEvents").items()
    entries = [example["payload"] for example in message["examples"]]
    assert sorted(entry["event_type"] for entry in entries) == PUSHED
    for entry in entries:
        traced = {name: entry[name] for name in ("request_id", "trace_id") if name in entry}
        ours = WIRE.encoders["push"](claim_for(entry["event_type"], **traced))
        assert entry | {"payload_bytes": base64.b64decode(entry["payload_bytes"])} == ours
        assert not problems(message["payload"], entry)
        assert problems(message["payload"], entry | {"device_session_id": "d"})


@pytest.mark.req("S1-89", "S1-148", "S1-149")
def test_delivery_commands_are_what_we_write() -> None:
    ((_, message),) = messages("deliveryCommands").items()
    entries = [example["payload"] for example in message["examples"]]
    assert len(entries) == len(WAYS)
    for entry in entries:
        command = json.loads(entry["payload_json"])
        route_id = entry["delivery_id"].partition("/")[2]
        traced = {name: entry[name] for name in ("request_id", "trace_id") if name in entry}
        ref = route_id.partition(":")[2]
        claim = claim_for(
            command["template_id"], "email", route_id=route_id, recipient_ref=ref, address=command["to"][0], **traced
        )
        assert WIRE.encoders["email"](claim) == entry
        assert not problems(message["payload"], entry)
        two = json.dumps(command | {"to": ["a@b.c", "d@e.f"]})
        assert problems(message["payload"], entry | {"payload_json": two})


@pytest.mark.req("S1-89")
def test_the_streams_have_the_documents_names() -> None:
    names = {channel["address"] for channel in ASYNC_API["channels"].values()}
    assert names == {"notification:intents", "gateway:client-events", "mail:delivery_commands"}
    assert ASYNC_API["asyncapi"].startswith("3.0.")


@pytest.mark.req("S1-89")
def test_the_probes_have_the_documents_answers() -> None:
    answers = {}
    for path, methods in resolved(OPEN_API["paths"], OPEN_API).items():
        assert list(methods) == ["get"]
        for status, answer in methods["get"]["responses"].items():
            for content in answer["content"].values():
                for example in content["examples"].values():
                    checker = jsonschema_rs.validator_for(content["schema"])
                    assert checker.is_valid(example["value"])
                    assert not checker.is_valid({"status": "perhaps"})
                    answers[path, status] = example["value"]
    assert answers["/healthz", "200"] == {"status": "ok"}
    assert answers["/readyz", "200"] == {"status": "ready"}
    assert {path for path, _ in answers} == {"/healthz", "/readyz"}


@pytest.mark.req("S1-89", "S1-186")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_the_pages_lead_somewhere(page: Path) -> None:
    assert page.read_text().startswith("# ")
    for target in docs_pages.links(page):
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        assert not anchor or anchor in docs_pages.anchors(there), target


@pytest.mark.req("S1-89", "S1-186")
def test_the_index_names_every_page_and_the_runbook_every_step() -> None:
    index = set(docs_pages.links(FOLDER / "docs" / "README.md"))
    assert {page.name for page in PAGES} - {"README.md"} <= index
    runbook = FOLDER / "docs" / "runbook.md"
    assert {"starting", "steady-state", "stopping", "incidents", "replaying-a-dead-letter"} <= docs_pages.anchors(
        runbook
    )
    for word in ("carillon galaxy dead-letters", "**new**", "not supported"):
        assert word in runbook.read_text()


def test_the_runtime_page_names_every_variable_and_metric() -> None:
    blueprint = tomllib.loads((FOLDER / "blueprint.toml").read_text())
    page = FOLDER / "docs" / "runtime.md"
    said = {docs_pages.word(cells[0]): cells[1] for cells in docs_pages.rows(page, "Settings")}
    assert set(said) == {name for name in blueprint["env"] if name.startswith("NOTIFICATION_")}
    assert {name for name, default in said.items() if default == "required"} == set(blueprint["env_required"])
    metrics = {docs_pages.word(cells[0]) for cells in docs_pages.rows(page, "Metrics")}
    assert metrics == {each["name"] for each in blueprint["metrics"]["instruments"].values() if "name" in each}


@pytest.mark.req("S1-89", "S1-183")
def test_the_examples_page_runs(redis_url: str) -> None:
    client: Any = redis.Redis.from_url(redis_url, decode_responses=True)
    environment = {"PATH": "/usr/bin:/bin", "REDIS_URL": redis_url}
    printed = []
    client.xadd("gateway:client-events", WIRE.encoders["push"](claim_for("game.turn.ready")))
    for block in docs_pages.blocks(EXAMPLES):
        commands = {
            "console": [["bash", "-euc", step.command] for step in docs_pages.steps(block)]
            if block.kind == "console"
            else [],
            "python": [[sys.executable, "-c", block.text]],
        }[block.kind]
        for command in commands:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
            assert done.returncode == 0, done.stderr
            printed.append(done.stdout.strip())
    entries = client.xrange("notification:intents")
    client.close()
    assert len(entries) == 5
    for entry_id, fields in entries:
        assert isinstance(WIRE.decode(entry_id, fields), Intent)
    assert [entry_id for entry_id, _ in entries] == [line for line in printed if re.fullmatch(r"\d+-\d+", line)]
    assert printed[-1] == "user-1 game-123 54"


def test_the_sixteenth_type_of_the_index_is_a_type(tmp_path: Path) -> None:
    text = (FOLDER / "docs" / "README.md").read_text()
    (found,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    file = tmp_path / "types.toml"
    file.write_text(found)
    assert set(catalogue.read(file).types) - set(TYPES) == {"fleet.launched"}


GO = FOLDER / "docs" / "go-producer.md"


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.req("X1-5")
async def test_the_bytes_of_the_page_are_an_intent_and_its_payload(galaxy: Galaxy) -> None:
    wire, payload = (block.text for block in docs_pages.blocks(GO) if block.kind == "text")
    galaxy.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", galaxy.server.port)
    writer.write(f"AUTH {PASSWORD}\r\n".encode() + wire.strip().replace("\n", "\r\n").encode() + b"\r\n")
    await writer.drain()
    assert await reader.readline() == b"+OK\r\n"
    assert (await reader.readline()).startswith(b"$")
    entry_id = (await reader.readline()).strip().decode()
    writer.close()
    await galaxy.routes(entry_id, status="published")
    events = await galaxy.published(GATEWAY, 2)
    assert {fields["payload_bytes"].hex() for _, fields in events} == {"".join(payload.split())}
    # The Redis of this stand holds every key that the page of the runtime names, and no other.
    page = (FOLDER / "docs" / "runtime.md").read_text()
    names = {re.sub(r"<.*", "", name) for name in re.findall(r"^\| `([a-z_]+:[^`]+)` \|", page, re.MULTILINE)}
    for key in await galaxy.redis.keys("*"):
        assert any(key.decode() == name or key.decode().startswith(name) for name in names), key


@pytest.mark.req("X1-5")
def test_flatc_makes_go_bindings_that_read_the_same_slots(tmp_path: Path) -> None:
    (block,) = [block for block in docs_pages.blocks(GO) if block.kind == "console"]
    done = subprocess.run(
        ["bash", "-ec", "\n".join(step.command for step in docs_pages.steps(block))],
        env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    tables = {kind.push.table: kind.push for kind in CATALOGUE.types.values() if kind.push is not None}
    made = tmp_path / "gen" / "notification"
    assert {file.stem for file in made.glob("*.go")} == set(tables)
    for name, push in tables.items():
        text = (made / f"{name}.go").read_text()
        assert "package notification" in text
        for number, slot in enumerate(push.fields):
            method = "".join(word.capitalize() for word in slot.name.split("_"))
            kind = "int64" if slot.kind == "int64" else r"\[\]byte"
            pattern = rf"\) {method}\(\) {kind} {{\n\to := flatbuffers.UOffsetT\(rcv._tab.Offset\({4 + 2 * number}\)\)"
            assert re.search(pattern, text), (name, slot.name)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.req("X1-7")
async def test_the_page_of_the_migration_names_everything_in_the_schema(galaxy: Galaxy) -> None:
    galaxy.start()
    rows = await galaxy.rows(
        "SELECT relname FROM pg_class WHERE relnamespace = 'notification'::regnamespace"
        " AND relkind IN ('r', 'v', 'S') AND relname NOT LIKE '%_id_seq'"
    )
    page = (FOLDER / "docs" / "postgres-migration.md").read_text()
    assert {row["relname"] for row in rows} <= set(re.findall(r"`([a-z_]+)`", page))


@pytest.mark.req("X1-6")
def test_mail_templates_are_written_for_both_kinds_of_engines(tmp_path: Path) -> None:
    page = (FOLDER / "docs" / "README.md").read_text()
    assert "carillon galaxy assets mail-templates --form go" in page
    for form, place in (("plain", "{{%s}}"), ("go", "{{.%s}}")):
        done = run_carillon(["galaxy", "assets", form, "--form", form], cwd=tmp_path, check=True)
        assert done.stdout.strip() == f"30 files written to {form}"
        for name, kind in CATALOGUE.types.items():
            texts = [(tmp_path / form / name / "en" / f"{part}.tmpl").read_text() for part in ("subject", "text")]
            found = re.findall(r"\{\{[^}]*\}\}", "".join(texts))
            assert found
            assert set(found) <= {place % field for field in kind.required}
