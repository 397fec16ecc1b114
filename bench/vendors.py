"""Draining a backlog through FCM and Twilio, beside webhooks: the same nginx answers all three."""

import asyncio
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from bench.measure import Figure, Outcome, Ratio, interleaved
from bench.ours import WEBHOOKS, WIDE, finished, plain, webhook
from bench.stage import carillon, nginx, run
from tests.support.servers import Postgres

PART = "vendors"
JOBS = 20_000
WEBHOOK, FCM, TWILIO = "signed webhooks", "FCM v1", "Twilio"
# One answer for all of them: a token of Google's, a message of FCM's, a message of Twilio's.
BODY = json.dumps(
    {
        "access_token": "bench-access-token",
        "expires_in": 3600,
        "name": "projects/bench/messages/0:1500415314455276%31bd1c9631bd1c96",
        "sid": "SM00000000000000000000000000000000",
        "status": "queued",
    }
)
ROUTES = {FCM: ("push", "fcm", "device-1"), TWILIO: ("sms", "twilio", "+4915112345678")}


def measure(postgres: Postgres, progress: Callable[[str], None], rounds: int = 3) -> Outcome:
    """Messages a second, and beside them for each second of the process's processor time."""
    spent: dict[str, list[float]] = {name: [] for name in (WEBHOOK, FCM, TWILIO)}
    with nginx(BODY) as url:
        subjects = {name: _subject(name, postgres, url, values) for name, values in spent.items()}
        outcome = Outcome(interleaved(PART, "messages/s", subjects, rounds, progress))
    outcome.figures += [
        Figure(PART, f"{name}, by processor time", "messages/CPU-s", values) for name, values in spent.items()
    ]
    base = outcome.median(WEBHOOK)
    outcome.ratios = [
        Ratio("fcm/webhook", outcome.median(FCM) / base, 0.7),
        Ratio("twilio/webhook", outcome.median(TWILIO) / base, 0.7),
    ]
    outcome.settings = {
        "vendors": f"{JOBS} messages, nginx with one worker, {plain(WIDE)}; webhooks: {plain(WEBHOOKS)}"
    }
    return outcome


def _subject(name: str, postgres: Postgres, url: str, spent: list[float]) -> Callable[[], float]:
    def go() -> float:
        dsn = postgres.database()
        run("fill", dsn, str(JOBS), *ROUTES.get(name, ("webhook", "webhook", url)))
        with tempfile.TemporaryDirectory() as folder:
            config = _settings(name, url, Path(folder))
            env = {"DATABASE_URL": dsn, **WIDE}
            with carillon(env, "--roles", "outbound", "--config", str(config)) as (process, _):
                began = processor_seconds(process.pid)
                rate = asyncio.run(finished(dsn, JOBS))
                spent.append(JOBS / (processor_seconds(process.pid) - began))
                return rate

    return go


def _settings(name: str, url: str, folder: Path) -> Path:
    base = url.removesuffix("/hook")
    if name == WEBHOOK:
        return webhook(url, folder)
    config = folder / "bench.toml"
    if name == TWILIO:
        config.write_text(
            'extends = "local"\n[channels]\nsms = ["twilio"]\n[providers.twilio]\nkind = "twilio"\n'
            f'account_sid = "AC0"\nauth_token = "bench-auth-token"\nsender = "+15005550006"\nbase_url = "{base}"\n'
        )
        return config
    key = rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    account = {
        "type": "service_account",
        "client_email": "bench@example.org",
        "private_key": key.decode(),
        "token_uri": f"{base}/token",
        "project_id": "bench",
    }
    (folder / "account.json").write_text(json.dumps(account))
    config.write_text(
        'extends = "local"\n[channels]\npush = ["fcm"]\n[providers.fcm]\nkind = "fcm"\n'
        f'api = "v1"\ncredentials_file = "{folder}/account.json"\nbase_url = "{base}"\n'
    )
    return config


def processor_seconds(pid: int) -> float:
    """User and system time of a process so far, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
