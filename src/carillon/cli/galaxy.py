"""`carillon galaxy`: questions about the blueprint galaxy, which change nothing in it, and its mail templates."""

import asyncio
import json
import re
from datetime import UTC, datetime
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer

from carillon.blueprints.galaxy import producing
from carillon.blueprints.galaxy.producing import replay_fields, xadd_line
from carillon.cli.by_hand import of_existing, why
from carillon.cli.options import AsJson, Config, blueprint_option, load_for, print_json
from carillon.cli.words import counted
from carillon.compose import Ledger, open_ledger
from carillon.config.settings import Settings

app = typer.Typer(help="Show dead letters of the blueprint galaxy, or write its mail templates.", no_args_is_help=True)
BLUEPRINT = "galaxy"
STREAM = "notification:intents"
MOST = 200

_PLACE = re.compile(r"\{\{(\w+)\}\}")

Blueprint = Annotated[str | None, blueprint_option(BLUEPRINT)]


class Form(StrEnum):
    """How a placeholder is written."""

    PLAIN = "plain"
    GO = "go"


@app.callback()
def galaxy() -> None:
    """Show dead letters of the blueprint galaxy, or write its mail templates."""


@app.command("dead-letters")
def dead_letters(
    limit: Annotated[int, typer.Option(min=1, max=MOST, help="How many dead letters to show.")] = 50,
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    only_dead: Annotated[
        bool, typer.Option("--only-dead", help="Write XADD lines only for the users whose route became a dead letter.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List dead letters, newest first, each with its record and an XADD line that replays it under a new key."""
    settings = of_existing(load_for(BLUEPRINT, blueprint, config, needs="ledger"))
    rows, total, records = asyncio.run(_find(settings, limit))
    stream = STREAM if settings.stream is None else settings.stream.name
    items = [
        _item(records[notification_id], dead, stream, only_dead=only_dead)
        for notification_id, dead in _by_notification(rows).items()
    ]
    if as_json:
        print_json({"items": items, "total": total})
        return
    typer.echo(f"{len(rows)} of {counted(total, 'dead letter')}")
    for item in items:
        typer.echo("\n".join(_told(item)))


@app.command("assets")
def assets(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to write the files; made if missing.")],
    *,
    form: Annotated[
        Form, typer.Option(help="{{name}} for engines without logic, or {{.name}} for Go's text/template.")
    ] = Form.PLAIN,
    as_json: AsJson = False,
) -> None:
    """Write the mail templates of every type for the mail service, in the form that its engine reads."""
    sources = Path(producing.__file__).with_name("templates")
    files = sorted(sources.glob("*/*/*.tmpl"))
    for file in files:
        text = file.read_text(encoding="utf-8")
        target = folder / file.relative_to(sources)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_PLACE.sub(r"{{.\1}}", text) if form is Form.GO else text, encoding="utf-8")
    told = f"{len(files)} files written to {folder}"
    typer.echo(json.dumps({"files": len(files), "folder": str(folder)}) if as_json else told)


async def _find(settings: Settings, limit: int) -> tuple[list[dict[str, Any]], int, dict[str, Any]]:
    ledger = await open_ledger(settings)
    try:
        rows, total = await ledger.dead_letters({}, limit, 0)
        return rows, total, await _records(ledger, sorted({row["notification_id"] for row in rows}))
    finally:
        await ledger.aclose()


async def _records(ledger: Ledger, ids: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for notification_id in ids:
        story = await ledger.story(notification_id, None)
        # Retention may delete a record between the two queries.
        found[notification_id] = None if story is None else story.notification
    return found


def _by_notification(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for notification_id, group in groupby(rows, key=lambda row: str(row["notification_id"])):
        found.setdefault(notification_id, []).extend(group)
    return found


def _item(record: Any, dead: list[dict[str, Any]], stream: str, *, only_dead: bool) -> dict[str, Any]:  # noqa: ANN401 - a row
    if record is None:
        return {"record": None, "dead_letters": dead, "xadd": None}
    refs = {row["recipient_ref"] for row in dead} if only_dead else None
    return {"record": record, "dead_letters": dead, "xadd": xadd_line(stream, replay_fields(record, refs))}


def _told(item: dict[str, Any]) -> list[str]:
    record, dead = item["record"], item["dead_letters"]
    lines = ["", str(dead[0]["notification_id"])]
    if record is not None:
        lines[1] += f"  {record['notification_type']}  from {record['producer']}  key {record['idempotency_key']}"
        lines.append(f"  accepted {_time(record['accepted_at'])}  {record['payload_json']}")
    for row in dead:
        lines.append(f"  {row['route_id']}: {why(row)}")
        lines.append(
            f"    {row['final_attempt_count']} of {row['max_attempts']} attempts, given up {_time(row['created_at'])}"
        )
    if item["xadd"] is not None:
        lines += ["  Once the cause is repaired, replay with redis-cli; this dead letter stays as it is:", item["xadd"]]
    return lines


def _time(unix_ms: int) -> str:
    return datetime.fromtimestamp(unix_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
