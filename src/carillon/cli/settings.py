"""`carillon config`, `migrate`, `doctor` and `version`."""

import asyncio
import json
from collections.abc import Mapping

import typer
from rich.console import Console

from carillon.cli.options import AsJson, Blueprint, Config, print_json
from carillon.config.reading import load, masked, sources
from carillon.version import __version__

MARKS = {"ok": "[green]ok  [/]", "warn": "[yellow]warn[/]", "ill": "[red]ill [/]"}
app = typer.Typer(help="Show the settings that a process would run with.", no_args_is_help=True)


@app.callback()
def config() -> None:
    """Show the settings that a process would run with."""


@app.command()
def show(blueprint: Blueprint = None, config: Config = None, *, as_json: AsJson = False) -> None:
    """Print every setting and where its value comes from: blueprint, file, variable or default; mask secrets."""
    settings = masked(load(blueprint, config))
    if as_json:
        typer.echo(json.dumps(settings, ensure_ascii=False))
        return
    console = Console(emoji=False)
    for line in toml_lines(settings, sources(blueprint, config)):
        console.print(line, markup=False, highlight=True, soft_wrap=True)


def migrate(blueprint: Blueprint = None, config: Config = None, *, as_json: AsJson = False) -> None:
    """Bring the ledger's tables up to date, once, under a lock; `serve` does the same at its start."""
    # Imported here, as in `doctor`: `carillon version` needs no driver of a database.
    from carillon.compose import open_ledger  # noqa: PLC0415 - as said

    settings = load(blueprint, config, needs="ledger")

    async def run() -> list[str]:
        ledger = await open_ledger(settings)
        try:
            return await ledger.migrate()
        finally:
            await ledger.aclose()

    steps = asyncio.run(run())
    typer.echo(json.dumps({"applied": steps}) if as_json else "The ledger's tables are up to date.")


def doctor(blueprint: Blueprint = None, config: Config = None, *, as_json: AsJson = False) -> None:
    """Check settings, ledger, Redis, templates and providers; exit 1 if a check fails."""
    from carillon.compose.blueprints import examine  # noqa: PLC0415 - as said

    findings = asyncio.run(examine(load(blueprint, config)))
    if as_json:
        print_json([finding.plain() for finding in findings])
    else:
        console = Console(emoji=False)
        for finding in findings:
            console.print(f"{MARKS[finding.verdict]} {finding.part}: ", end="")
            console.print(finding.words, markup=False, soft_wrap=True)
    if any(finding.verdict == "ill" for finding in findings):
        raise typer.Exit(1)


def version(*, as_json: AsJson = False) -> None:
    """Print the version."""
    typer.echo(f'{{"version": "{__version__}"}}' if as_json else __version__)


def toml_lines(tree: dict[str, object], origins: Mapping[str, str], path: str = "", plain_path: str = "") -> list[str]:
    """The tree as TOML, plain values before tables; a comment names the origin of a value that is no default."""
    lines = [
        f"{_name(name)} = {json.dumps(value, ensure_ascii=False)}" + _origin(origins, f"{plain_path}{name}")
        for name, value in tree.items()
        if _is_plain(value)
    ]
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            inner = f"{path}.{_name(name)}" if path else _name(name)
            body = toml_lines(value, origins, inner, f"{plain_path}{name}.")
            heading = ["", f"[{inner}]"] if any(_is_plain(held) for held in value.values()) else []
            lines += [*heading, *body]
    return lines


def _origin(origins: Mapping[str, str], path: str) -> str:
    return f"  # {origins[path]}" if path in origins else ""


def _is_plain(value: object) -> bool:
    # TOML has no null, so settings without a value are left out.
    return value is not None and not isinstance(value, dict)


def _name(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() else json.dumps(name)
