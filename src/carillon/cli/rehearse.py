"""`carillon rehearse`: hours of load and outages in virtual time, and what they would have done to your settings."""

import logging
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from carillon.cli.options import AsJson, Blueprint, Config
from carillon.cli.plots import sparkline
from carillon.cli.words import counted
from carillon.config.reading import load
from carillon.config.settings import Settings
from carillon.domain.errors import ConfigurationError
from carillon.rehearsal import rehearse as play
from carillon.rehearsal.chart import chart
from carillon.upkeep.rehearsals.figures import Figures
from carillon.upkeep.rehearsals.plan import MOST_PLAYED, RehearsalPlan, RehearsalQuestion, plan_of

_WIDTH = 60
# The printer of helps takes square brackets for a style.
_WAYS = '"fcm 20m" or "fcm 20m at 5m slow 3s"; in place of slow 3s also down, hanging, silent, throttled or failing 40%'


Load = Annotated[str, typer.Option("--load", help="How many notifications arrive: 500/s, 2000/h, 1000000/d.")]
Outages = Annotated[list[str] | None, typer.Option(help=f"What fails, once for each outage: {_WAYS}.")]
Mix = Annotated[
    list[str] | None,
    typer.Option(help="A kind of notification and its share: sms=3, sms/high=1, email/bulk=6; else every channel."),
]
For = Annotated[
    str | None, typer.Option("--for", help="How long notifications arrive; else half an hour past the last outage.")
]
Prices = Annotated[list[str] | None, typer.Option(help="What one message costs at a provider: twilio=0.0079.")]
Latencies = Annotated[
    list[str] | None, typer.Option(help="The median time of a call: twilio=300ms, or *=150ms for all others.")
]
Processes = Annotated[int, typer.Option(min=1, max=1000, help="How many processes send.")]
Most = Annotated[
    int, typer.Option(min=100, max=MOST_PLAYED, help="Play at most so many; each stands for several if more arrive.")
]
Seed = Annotated[int, typer.Option(help="Another seed throws other dice; the same one repeats a rehearsal.")]
Chart = Annotated[Path | None, typer.Option("--chart", help="Write the chart to this SVG file.", dir_okay=False)]


def rehearse(  # noqa: PLR0917 - a command line has many options
    blueprint: Blueprint = None,
    config: Config = None,
    load_: Load = "10/s",
    outage: Outages = None,
    mix: Mix = None,
    for_: For = None,
    price: Prices = None,
    latency: Latencies = None,
    processes: Processes = 1,
    most: Most = 10_000,
    seed: Seed = 1,
    chart_file: Chart = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Play an outage with your own settings, in virtual time: who would have been told late, by whom, or not at all.

    Nothing is sent and no server is needed. Policies, breakers, lanes, groups, rates and failover are the real ones.
    """
    settings = load(blueprint, config, needs="nothing")
    question = RehearsalQuestion(
        load=load_,
        lasts=for_,
        outages=outage or [],
        mix=mix or [],
        prices=price or [],
        latencies=latency or [],
        processes=processes,
        most=most,
        seed=seed,
    )
    plan = plan_of(question, settings.channels)
    _refuse_no_folder(chart_file)
    figures = _played(settings, plan, quiet=as_json)
    _write(chart_file, figures, plan)
    if not as_json:
        return show(figures, plan)
    return typer.echo(msgspec.json.encode(figures))


def _refuse_no_folder(path: Path | None) -> None:
    """Before minutes of playing, not after them."""
    if path is not None and not path.parent.is_dir():
        raise ConfigurationError(f"--chart: {path} cannot be written: there is no folder {path.parent}")


def _write(path: Path | None, figures: Figures, plan: RehearsalPlan) -> None:
    if path is None:
        return
    try:
        path.write_text(chart(figures, plan), encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"--chart: {path} cannot be written: {error.strerror}") from None


def _played(settings: Settings, plan: RehearsalPlan, *, quiet: bool) -> Figures:
    # The engine says what happens in it as always; here its breakers open by the dozen, and the figures tell of them.
    logging.disable(logging.CRITICAL)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
    )
    try:
        with Progress(*columns, console=Console(stderr=True, emoji=False), disable=quiet, transient=True) as progress:
            bar = progress.add_task("rehearsing", total=plan.seconds)
            return play(settings, plan, lambda now, _of: progress.update(bar, completed=now))
    finally:
        logging.disable(logging.NOTSET)


def show(figures: Figures, plan: RehearsalPlan, console: Console | None = None) -> None:
    """The figures in words, with the backlog as a line of blocks."""
    out = console or Console(emoji=False)

    def say(text: str, style: str = "") -> None:
        out.print(Text(text, style=style), soft_wrap=True)

    if figures.scale > 1:
        say(f"Each notification that was played stands for {figures.scale:,}.", "dim")
    say(verdict(figures), "bold")
    say(f"  accepted    {figures.accepted:>12,}   in {spelled(plan.seconds)}, {figures.calls:,} calls")
    say(f"  delivered   {figures.delivered:>12,}   {_share(figures.delivered, figures.accepted)}")
    say(f"  late        {figures.late:>12,}   later than the lane's max_latency_seconds")
    say(f"  failed over {figures.failed_over:>12,}   delivered by another provider than the first")
    reasons = ", ".join(f"{why} {number:,}" for why, number in figures.reasons.items())
    say(f"  given up    {figures.given_up:>12,}   {reasons}".rstrip())
    say(f"  skipped     {figures.skipped:>12,}")
    say(f"  repeated    {figures.repeated:>12,}   accepted by a vendor more than once")
    if figures.waiting:
        say(f"  waiting     {figures.waiting:>12,}   when the rehearsal ended", "yellow")
    if figures.lateness is not None:
        times = figures.lateness
        spread = f"p50 {spelled(times.p50)}, p90 {spelled(times.p90)}, p99 {spelled(times.p99)}"
        say(f"Delivered after {spread}, at most {spelled(times.longest)}.")
    say(f"At most {counted(figures.peak, 'notification')} waited at once.{_caught_up(figures, plan)}")
    for one in figures.breakers:
        until = "the end" if one.ends is None else spelled(one.ends)
        say(f"The breaker of {one.provider} was open or half open from {spelled(one.begins)} to {until}.")
    if figures.costs:
        parts = ", ".join(f"{name} {cost:,.2f}" for name, cost in figures.costs.items())
        say(f"Cost: {figures.cost:,.2f} ({parts}).")
    for title, values in (
        ("waiting ", [one.waiting for one in figures.slices]),
        ("late    ", [one.late for one in figures.slices]),
        ("given up", [one.given_up for one in figures.slices]),
    ):
        if any(values):
            say(f"{title}  {sparkline(_narrowed(values, _WIDTH), _WIDTH)}", "cyan")


def _narrowed(values: list[int], width: int) -> list[int]:
    """The highest value of each of `width` parts."""
    each = max(1, -(-len(values) // width))
    return [max(values[at : at + each]) for at in range(0, len(values), each)]


def verdict(figures: Figures) -> str:
    """The most important thing, in one sentence."""
    if figures.waiting:
        return f"{counted(figures.waiting, 'notification')} still waited when the rehearsal ended."
    if figures.given_up:
        return f"{counted(figures.given_up, 'notification')} would have become dead letters."
    if figures.skipped:
        return f"{counted(figures.skipped, 'notification')} would have been skipped."
    if not figures.accepted:
        return "No notification arrived: the load is too low for this time."
    if figures.late:
        return f"Everybody would have been told, {counted(figures.late, 'notification')} late."
    return "Everybody would have been told in time."


def _caught_up(figures: Figures, plan: RehearsalPlan) -> str:
    if not plan.outages or figures.caught_up is None:
        return ""
    if figures.caught_up == 0:
        return " After the last outage nothing was late."
    return f" The last late one was delivered {spelled(figures.caught_up)} after the last outage."


def _share(number: int, of: int) -> str:
    return f"{100 * number / of:.2f} %" if of else ""


def spelled(seconds: float) -> str:
    """Seconds as people say them: `0.15 s`, `6.1 s`, `20 min`, `2 h 5 min`."""
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.1f} s".replace(".0 s", " s")
    minutes = round(seconds / 60)
    hours, rest = divmod(minutes, 60)
    if not hours:
        return f"{rest} min"
    return f"{hours} h {rest} min" if rest else f"{hours} h"
