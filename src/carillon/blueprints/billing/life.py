"""The scheduled jobs of a subscription's life: renewals that are due, periods that are over, and the end."""

from carillon.blueprints.billing.domain import LifeRules, Outgoing, Subscription, renewal_key
from carillon.blueprints.billing.subscription import Subscriptions
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import PartStarted, Trouble
from carillon.domain.ports import Clock, Observer

BATCH = 100
"""Renewals of one commit."""
MOST_BATCHES = 1000
LONGEST_WAIT = 60.0


class SubscriptionLife:
    """Looks at an interval; several processes may look side by side, and each renewal is asked for once."""

    def __init__(self, subscriptions: Subscriptions, rules: LifeRules, clock: Clock, observer: Observer) -> None:
        self._subscriptions = subscriptions
        self._rules = rules
        self._clock = clock
        self._observe = observer

    async def run(self) -> None:
        """Look until cancelled."""
        for name in ("renew_subscriptions", "end_subscription_periods"):
            self._observe(PartStarted(part=name, detail=f"every {self._rules.every_seconds:g} s"))
        wait = self._rules.every_seconds
        while True:
            try:
                await self.renew()
                await self.end()
                wait = self._rules.every_seconds
            except LedgerUnavailable as error:
                wait = min(wait * 2, max(LONGEST_WAIT, self._rules.every_seconds))
                self._observe(Trouble(where="subscription_life", error=str(error), retry_in_seconds=wait))
            await self._clock.sleep(wait)

    async def renew(self) -> int:
        """Ask for the renewals that are due; returns how many."""
        found = 0
        for _ in range(MOST_BATCHES if self._rules.renewals else 0):
            asked = await self._subscriptions.ledger.ask_for_renewals(self._rules, BATCH, self._renewal)
            found += asked
            if asked < BATCH:
                break
        return found

    async def end(self) -> tuple[int, int]:
        """Subscriptions whose period is over become past due, those whose grace is over are cancelled."""
        return await self._subscriptions.ledger.end_periods(self._rules)

    def _renewal(self, subscription: Subscription) -> Outgoing:
        return self._subscriptions.renewal(subscription, renewal_key(subscription))
