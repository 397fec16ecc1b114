"""The output of `carillon send --dry-run`: gate by gate, then each further route, what would happen."""

import json
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape

_MARKS = {"pass": "[green]pass[/]", "stop": "[red]stop[/]", "note": "[yellow]note[/]"}


def show(explanation: dict[str, Any], *, as_json: bool) -> None:
    """Print the explanation; exit with 1 when nothing would be sent, so that scripts can ask."""
    if as_json:
        typer.echo(json.dumps(explanation, ensure_ascii=False))
    else:
        _print(explanation)
    if explanation["outcome"] in {"rejected", "failed"}:
        raise typer.Exit(1)


def _print(explanation: dict[str, Any]) -> None:
    console = Console(emoji=False)
    for step in explanation["steps"]:
        console.print(f"{_MARKS[step['verdict']]}  [bold]{step['step']}[/]", highlight=False)
        for name, value in step["detail"].items():
            for line in _lines(name, value):
                console.print(f"        {line}", markup=False, highlight=False)
    # The gates above show the first route; the others differ from it in their attempts.
    for route in explanation.get("routes", [])[1:]:
        console.print(f"also  [bold]{escape(route['routeId'])}[/]", highlight=False)
        for name in ("outcome", "policy", "attempts", "ends", "because"):
            for line in _lines(name, route.get(name)):
                console.print(f"        {line}", markup=False, highlight=False)
    why = f": {explanation['message']}" if explanation.get("message") else ""
    console.print(f"would be {explanation['outcome']}{why}", markup=False, highlight=False)


def _lines(name: str, value: object) -> list[str]:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [f"{name}: " + ", ".join(f"{key} {inner}" for key, inner in each.items()) for each in value]
    return [f"{name}: {line}" for line in str("none" if value is None else value).splitlines() or [""]]
