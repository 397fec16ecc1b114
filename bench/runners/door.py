"""The send endpoint over three acceptors: none at all, one INSERT a request, or intake as it is."""

import asyncio
import signal
import sys

import uvloop

from carillon.compose import from_settings, messages
from carillon.config.reading import load
from carillon.domain.errors import BadIntent
from carillon.domain.intents import Intent
from carillon.domain.notifications import Acceptance, Enrolment
from carillon.doors.http import endpoints as http
from carillon.intake.accept import Intake
from carillon.intake.plan import plan
from carillon.ledger.postgres.ledger import PostgresLedger
from carillon.system import SystemClock, new_id
from carillon.upkeep.logs import lines as logs
from carillon.web import Server, ServerSettings, WebSettings, app

CONNECTIONS = 64


class Bare(Intake):
    """Everything but the ledger: decoded, rendered, planned."""

    async def accept(self, intent: Intent) -> Acceptance:
        return Acceptance((await self._planned(intent)).notification.notification_id, "standard")

    async def _planned(self, intent: Intent) -> Enrolment:
        return plan(intent, await self._contents.of(intent), new_id(), self._rules, self._clock.wall())


class Single(Bare):
    """One INSERT for each request, on a connection of its own."""

    ledger: PostgresLedger

    async def accept(self, intent: Intent) -> Acceptance:
        enrolment = await self._planned(intent)
        (enrolled,) = await self.ledger.enrol([enrolment])
        if enrolled.notification_id != enrolment.notification.notification_id:
            raise BadIntent("IDEMPOTENCY_CONFLICT", "a key came twice")
        return Acceptance(enrolled.notification_id, "standard")


async def opened(mode: str, dsn: str) -> tuple[PostgresLedger, Intake]:
    """The ledger and an intake over it."""
    settings = load(environ={"DATABASE_URL": dsn})
    ledger = await PostgresLedger.open(dsn, intake_connections=CONNECTIONS if mode == "single" else 4)
    await ledger.migrate()
    kinds = {"bare": Bare, "single": Single, "coalesced": Intake}
    intake = kinds[mode](
        ledger=ledger,
        templates=messages.templates(settings),
        signal=ledger.signal,
        rules=from_settings.plan_rules(settings, from_settings.chains(settings)),
        observer=lambda _: None,
        ids=new_id,
        clock=SystemClock(),
    )
    if isinstance(intake, Single):
        intake.ledger = ledger
    return ledger, intake


async def main(mode: str, dsn: str) -> None:
    ledger, intake = await opened(mode, dsn)
    server = Server(app(http.endpoints(intake), WebSettings()), ServerSettings(port=0))
    await server.start()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    logs.ready([f"http://127.0.0.1:{server.port}"])
    await stop.wait()
    await server.stop(1.0)
    await ledger.aclose()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2]))
