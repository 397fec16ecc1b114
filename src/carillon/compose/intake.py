"""The way in: requests are accepted, explained, delivered while the caller waits, and looked up."""

from collections.abc import Sequence
from contextlib import AsyncExitStack

from carillon.compose import from_settings, kafka_door
from carillon.compose import synchronous as while_waiting
from carillon.compose.breakers import BreakersPart
from carillon.compose.ledger import LedgerPart
from carillon.compose.part import Ending, Part
from carillon.compose.process import Process
from carillon.compose.providers import ProvidersPart
from carillon.compose.templates import TemplatesPart
from carillon.compose.worker import WorkerPart
from carillon.doors.http import endpoints as http_door
from carillon.intake.accept import Intake
from carillon.intake.explain import Explainer
from carillon.outbound.synchronous import SynchronousDelivery
from carillon.system import new_id
from carillon.upkeep.api import admin as admin_api
from carillon.upkeep.api import notifications as api
from carillon.web import Endpoint


class IntakePart(Part):
    """What HTTP and the doors that read from brokers give their intents to."""

    intake: Intake

    def __init__(
        self,
        process: Process,
        ledger: LedgerPart,
        providers: ProvidersPart,
        *,
        breakers: BreakersPart,
        templates: TemplatesPart,
        worker: WorkerPart,
    ) -> None:
        self._process = process
        self._ledger = ledger
        self._providers = providers
        self._breakers = breakers
        self._templates = templates
        self._worker = worker
        self.synchronous: SynchronousDelivery | None = None

    async def open(self, stack: AsyncExitStack) -> None:
        process, ledger, wording = self._process, self._ledger.ledger, self._templates.wording
        self.intake = Intake(
            ledger=ledger,
            templates=wording.templates,
            acquaint=wording.acquaint,
            signal=ledger.signal,
            rules=from_settings.plan_rules(process.settings, process.chains),
            observer=process.observe,
            ids=new_id,
            claim_on_accept=self._worker.claim_on_accept(),
        )
        self.synchronous = while_waiting.synchronous(
            process,
            stack,
            intake=self.intake,
            ledger=ledger,
            providers=self._providers.providers,
            breakers=self._breakers.breakers,
        )

    async def stop(self, ending: Ending) -> None:
        await self.intake.drain()
        if self.synchronous is not None:
            await self.synchronous.drain(ending.deadline.left())

    def endpoints(self) -> list[Endpoint]:
        settings, chains, ledger = self._process.settings, self._process.chains, self._ledger.ledger
        rules, breakers = from_settings.plan_rules(settings, chains), self._breakers.breakers
        explainer = Explainer(self.intake, ledger, breakers, rules, self._process.clock)
        found = http_door.endpoints(self.intake, synchronous=self.synchronous, explains=explainer)
        lanes = from_settings.lanes(settings)
        found += api.endpoints(ledger, chains, lanes, strict_receipts=settings.strict_receipts)
        found += kafka_door.endpoints(settings, self.intake)
        admin = admin_api.endpoints(ledger, breakers, chains, lanes, clock=self._process.clock, ids=new_id)
        if settings.ledger.replay != "redrive":
            # Where only producers may send again, administrators look and change nothing.
            admin = [endpoint for endpoint in admin if endpoint.method == "GET"]
        return [*found, *admin]

    def pages(self) -> Sequence[str]:
        return ("overview", "notifications", "dead-letters")
