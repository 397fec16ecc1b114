"""`carillon listo`: checks of the blueprint listo before a deployment."""

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from carillon.cli.by_hand import is_there, with_ledger
from carillon.cli.options import AsJson, Config, blueprint_option, load_for, print_json
from carillon.compose import messages
from carillon.compose.templates import Wording
from carillon.config.settings import Settings
from carillon.domain.errors import ConfigurationError
from carillon.domain.policy import RetryPolicy
from carillon.domain.templates import Gap, gaps
from carillon.system import SystemClock

app = typer.Typer(help="Check the templates and retry policies of the blueprint listo.", no_args_is_help=True)
BLUEPRINT = "listo"

Blueprint = Annotated[str | None, blueprint_option(BLUEPRINT)]


@app.callback()
def listo() -> None:
    """Check the templates and retry policies of the blueprint listo."""


@app.command("validate-templates")
def validate_templates(blueprint: Blueprint = None, config: Config = None, *, as_json: AsJson = False) -> None:
    """List templates that are missing in a supported locale, in folders and ledger; exit 1 if there are any."""
    settings = load_for(BLUEPRINT, blueprint, config)
    if not settings.locale.supported:
        raise ConfigurationError("locale.supported: name the locales in which every template must exist")
    found = _gaps(settings)
    if as_json:
        print_json({"supported": settings.locale.supported, "missing": [str(gap) for gap in found]})
    else:
        for gap in found:
            typer.echo(f"missing: {gap}")
        typer.echo(f"{len(found)} missing over {', '.join(settings.locale.supported)}")
    if found:
        raise typer.Exit(1)


@app.command()
def backoff(
    policy: Annotated[str, typer.Option(help="Only this policy, as origin/channel.")] = "",
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Print the shortest and the longest wait after each failed attempt; they differ by the jitter."""
    settings = load_for(BLUEPRINT, blueprint, config)
    table = settings.policy.retry
    if policy and policy not in table:
        raise ConfigurationError(f"there is no policy {policy}; known: {', '.join(sorted(table))}")
    waits = {name: _waits(table[name]) for name in sorted(table) if policy in {"", name}}
    if as_json:
        print_json(waits)
        return
    shown = Table(title="Waits in seconds after failed attempt n; after the last there is none", title_justify="left")
    for heading in ("policy", "attempt", "from", "to"):
        shown.add_column(heading)
    for name, rows in waits.items():
        for row in rows:
            shown.add_row(name, str(row["attempt"]), f"{row['from']:g}", f"{row['to']:g}")
    Console(emoji=False).print(shown)


@app.command()
def policies(blueprint: Blueprint = None, config: Config = None, *, as_json: AsJson = False) -> None:
    """Print every retry policy as JSON, in the field names of the blueprint listo; --json prints one line."""
    settings = load_for(BLUEPRINT, blueprint, config)
    found = [_document_policy(name, policy) for name, policy in settings.policy.retry.items()]
    print_json(found, indent=None if as_json else 2)


def _document_policy(name: str, policy: RetryPolicy) -> dict[str, Any]:
    origin, _, channel = name.partition("/")
    return {
        "serviceOrigin": origin,
        "channel": channel,
        "maxAttempts": policy.budget,
        "baseDelaySeconds": policy.base_delay_seconds,
        "backoffFactor": policy.backoff_multiplier,
        "maxBackoffSeconds": policy.max_delay_seconds,
        "jitterMs": round(policy.jitter_seconds * 1000),
        "timeoutSeconds": policy.timeout_seconds,
        "enabled": policy.enabled,
    }


def _waits(policy: RetryPolicy) -> list[dict[str, Any]]:
    # The blueprint counts attempts from 0, the engine failures from 1.
    return [
        {
            "attempt": number,
            "from": policy.delay(number + 1, 0.0),
            "to": policy.delay(number + 1, 1.0),
        }
        for number in range(policy.budget)
    ]


def _gaps(settings: Settings) -> list[Gap]:
    # A missing ledger holds no templates.
    if not is_there(settings.ledger.url):
        return gaps([(None, *name) for name in messages.templates(settings).all()], settings.locale.supported)
    return with_ledger(settings, lambda ledger: Wording(settings, ledger, SystemClock()).gaps())
