"""`carillon push`: the queues of the blueprint push-worker."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import Progress

from carillon.cli.by_hand import confirmed
from carillon.cli.dead_letters import per_second
from carillon.cli.options import AsJson, Config, blueprint_option, load_for, print_json
from carillon.cli.words import counted
from carillon.config.settings import Settings
from carillon.domain.errors import ConfigurationError
from carillon.system import SystemClock

if TYPE_CHECKING:
    from carillon.upkeep.push_replay import Replay, Replayed

app = typer.Typer(help="Return failed messages of the blueprint push-worker to their queue.", no_args_is_help=True)
BLUEPRINT = "push-worker"
_MANY = 200

Blueprint = Annotated[str | None, blueprint_option(BLUEPRINT)]


@app.callback()
def push() -> None:
    """Return failed messages of the blueprint push-worker to their queue."""


@app.command("replay-dlq")
def replay_dlq(
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many; all by default.")] = None,
    rate: Annotated[str | None, typer.Option(metavar="N/s", help="At most this many a second, e.g. 20/s.")] = None,
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation before many.")] = False,
    as_json: AsJson = False,
) -> None:
    """Return failed messages to their queue, oldest first; each leaves it once the broker has the copy."""
    settings = load_for(BLUEPRINT, blueprint, config)
    pace = per_second(rate)

    async def work() -> "Replayed":
        replay = _replay(settings)
        try:
            return await _put_back(replay, limit, pace, dry_run=dry_run, yes=yes or as_json)
        finally:
            await replay.aclose()

    done = asyncio.run(work())
    if as_json:
        print_json({**msgspec.to_builtins(done), "dry_run": dry_run})
        return
    unfit = f", {done.left} left that hold no message" if done.left else ""
    typer.echo(
        f"{counted(done.found, 'dead letter')} found, {done.replayed} put back{unfit}"
        + (" (dry run)" if dry_run else "")
    )


async def _put_back(replay: "Replay", limit: int | None, pace: float | None, *, dry_run: bool, yes: bool) -> "Replayed":
    from carillon.upkeep.push_replay import Replayed  # noqa: PLC0415 - see _replay

    found = await replay.count()
    number = found if limit is None else min(found, limit)
    if dry_run or not number or not confirmed(number, f"Put {counted(number, 'message')} back?", yes=yes):
        return Replayed(found)
    with Progress(console=Console(stderr=True, emoji=False), disable=number <= _MANY) as progress:
        bar = progress.add_task("putting back", total=number)
        return await replay.run(found, number, pace, lambda many: progress.advance(bar, many))


def _replay(settings: Settings) -> "Replay":
    where = settings.push
    if where is None or not where.rabbitmq_url:
        raise ConfigurationError(f"push.rabbitmq_url: blueprint {settings.blueprint} works on no RabbitMQ queue")
    try:
        # Here, because the client is an extra and slow to load.
        from carillon.upkeep.push_replay import Replay  # noqa: PLC0415 - as said
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"push.rabbitmq_url: needs the package {error.name!r}; pip install 'carillon[rabbitmq]'"
        ) from None
    return Replay(where.rabbitmq_url, where.queue, where.failed_queue, SystemClock())
