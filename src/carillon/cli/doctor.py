"""`carillon doctor`: asks every part once and prints a line for each."""

import asyncio
import json

import typer
from rich.console import Console

from carillon.cli.options import AsJson, Blueprint, Config
from carillon.compose.doctor import examine
from carillon.compose.part import Finding
from carillon.config.reading import load

MARKS = {"ok": "[green]ok  [/]", "warn": "[yellow]warn[/]", "ill": "[red]ill [/]"}


def doctor(blueprint: Blueprint = None, config: Config = None, *, as_json: AsJson = False) -> None:
    """Check settings, ledger, Redis, templates and providers; exit 1 when one of them is ill."""
    findings = asyncio.run(examine(load(blueprint, config)))
    if as_json:
        typer.echo(json.dumps([finding.plain() for finding in findings], ensure_ascii=False))
    else:
        _print(findings)
    if any(finding.verdict == "ill" for finding in findings):
        raise typer.Exit(1)


def _print(findings: list[Finding]) -> None:
    console = Console(emoji=False)
    for finding in findings:
        console.print(f"{MARKS[finding.verdict]} {finding.part}: ", end="")
        console.print(finding.words, markup=False, soft_wrap=True)
