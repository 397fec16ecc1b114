"""`carillon keys`: API keys for programs; each is shown once, when it is made."""

import secrets
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.table import Table

from carillon.cli.by_hand import read_ledger, with_ledger
from carillon.cli.options import AsJson, Blueprint, Config, print_json, print_table
from carillon.config.environment import duration
from carillon.config.reading import load
from carillon.domain.errors import CarillonError
from carillon.domain.keys import ApiKey, NewKey
from carillon.web.auth import KEY_BYTES, fits_tenant, make_key

app = typer.Typer(help="Create, list and revoke API keys.", no_args_is_help=True)
MOST_ACTIVE = 2
"""Keys of one name: the old and the new one while its users change over."""
_LONGEST_NAME = 100
_LONGEST_LIFE = 10 * 366 * 86400.0


class KeyRole(StrEnum):
    """What a key may do."""

    USER = "user"
    ADMIN = "admin"


class KeyRefused(CarillonError):
    """The key cannot be made, or does not exist."""


@app.command()
def create(  # noqa: PLR0917 - a command line has many options
    name: Annotated[str, typer.Argument(help="The program that will use the key, e.g. orders-backend.")],
    tenant: Annotated[str | None, typer.Option(help="The tenant of the key.")] = None,
    role: Annotated[
        KeyRole,
        typer.Option(help="user sends, and reads what it sent; admin reaches everything of its tenant."),
    ] = KeyRole.USER,
    expires: Annotated[
        str | None, typer.Option(help="How long the key is valid, e.g. 90d or 12h; without limit by default.")
    ] = None,
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Create a key and show it once: Carillon keeps only a digest."""
    made = make_key(secrets.token_bytes(KEY_BYTES))
    fresh = NewKey(
        key_id=made.key_id,
        secret_hash=made.secret_hash,
        tenant_id=_tenant(tenant),
        role=role,
        name=_name(name),
        lives_seconds=_life(expires),
    )
    settings = load(blueprint, config, needs="ledger")
    key = with_ledger(settings, lambda ledger: ledger.add_api_key(fresh, MOST_ACTIVE))
    if key is None:
        raise KeyRefused(
            f"{name} has {MOST_ACTIVE} active keys; `carillon keys revoke` one that no program uses any more"
        )
    if as_json:
        print_json({"key": made.text, **_shown(key)})
    else:
        typer.echo(made.text)
        typer.echo("Copy the key now: it is not shown again.", err=True)
    if not settings.auth.asked():
        typer.echo("Carillon does not ask callers for keys yet: set auth.secret, or auth.required = true.", err=True)


@app.command("list")
def list_(blueprint: Blueprint = None, config: Config = None, *, as_json: AsJson = False) -> None:
    """List every key without its secret, newest first."""
    keys = read_ledger(load(blueprint, config, needs="ledger"), lambda ledger: ledger.api_keys()) or []
    if as_json:
        print_json([_shown(key) for key in keys])
        return
    table = Table(title=f"{len(keys)} keys", title_justify="left")
    for heading in ("id", "name", "tenant", "role", "state", "created", "last used", "expires"):
        table.add_column(heading, overflow="fold")
    for key in keys:
        shown = {name: "" if value is None else str(value) for name, value in _shown(key).items()}
        table.add_row(
            *(shown[column] for column in ("id", "name", "tenantId", "role", "state")),
            *(shown[column] for column in ("createdAt", "lastUsedAt", "expiresAt")),
        )
    print_table(table)


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="The key's id: the eight characters after ck_.")],
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Revoke a key; every process refuses it within five seconds."""
    # The operator may paste the whole key instead of its id.
    public = key_id.removeprefix("ck_").partition("_")[0]
    key = read_ledger(load(blueprint, config, needs="ledger"), lambda ledger: ledger.revoke_api_key(public))
    if key is None:
        raise KeyRefused(f"there is no key {public}; `carillon keys list` shows all")
    if as_json:
        print_json(_shown(key))
    else:
        typer.echo(f"{key.key_id} ({key.name}) is revoked")


def _name(name: str) -> str:
    if not name.strip() or not name.isprintable() or len(name) > _LONGEST_NAME:
        raise KeyRefused(f"a name is 1 to {_LONGEST_NAME} printable characters")
    return name.strip()


def _tenant(tenant: str | None) -> str | None:
    if tenant is not None and not fits_tenant(tenant):
        raise KeyRefused(f"--tenant {tenant}: a tenant is 1 to 64 letters, digits and . _ : -")
    return tenant


def _life(expires: str | None) -> float | None:
    if expires is None:
        return None
    seconds = duration(expires)
    if seconds is None or not 0 < seconds <= _LONGEST_LIFE:
        raise KeyRefused(f"--expires {expires}: is not a duration such as 12h or 90d, up to ten years")
    return seconds


def _shown(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.key_id,
        "name": key.name,
        "tenantId": key.tenant_id,
        "role": key.role,
        "state": _state(key),
        "createdAt": _time(key.created_at),
        "lastUsedAt": _time(key.last_used_at),
        "expiresAt": _time(key.expires_at),
        "revokedAt": _time(key.revoked_at),
    }


def _state(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "active" if key.active(datetime.now(UTC).timestamp() * 1000) else "expired"


def _time(unix_ms: float | None) -> str | None:
    return None if unix_ms is None else datetime.fromtimestamp(unix_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
