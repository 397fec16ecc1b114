"""Every endpoint that Carillon can serve, declared over nothing."""

from typing import Any, cast

import msgspec

from carillon.blueprints.billing import payment_api, subscription_api, webhooks
from carillon.domain.consent import NO_CATEGORIES
from carillon.domain.lanes import Lanes
from carillon.doors.http import endpoints as http
from carillon.doors.http import events as http_events
from carillon.live import endpoints as streams_api
from carillon.live.choices import InboxChoices
from carillon.providers import callback, has_receipts, kinds
from carillon.receipts import callbacks, suppressions
from carillon.upkeep import health
from carillon.upkeep.api import admin as admin_api
from carillon.upkeep.api import digests as digests_api
from carillon.upkeep.api import endpoints as endpoints_api
from carillon.upkeep.api import notifications as api
from carillon.upkeep.api import pauses as pauses_api
from carillon.upkeep.api import preferences as preferences_api
from carillon.upkeep.api import queues as queues_api
from carillon.upkeep.api import receipts as receipts_api
from carillon.upkeep.api import sandbox, templates_sending
from carillon.upkeep.api import skipped as skipped_api
from carillon.upkeep.api import targets as targets_api
from carillon.upkeep.api import templates as templates_api
from carillon.upkeep.api import waiting as waiting_api
from carillon.upkeep.consent import api as consent_api
from carillon.upkeep.consent import people, rights
from carillon.upkeep.console import api as console_api
from carillon.upkeep.console import templates as console_templates
from carillon.upkeep.rehearsals import api as rehearsals_api
from carillon.web import Endpoint


class Blank:
    """Has every attribute, and none of them works."""

    def __getattr__(self, name: str) -> Any:
        return self


def declared() -> list[Endpoint]:
    """All of them; their handlers cannot be called."""
    nobody: Any = Blank()
    reported = {kind: callback(kind) for kind in kinds() if has_receipts(kind)}
    return [
        *http.endpoints(nobody, explains=cast("Any", object())),
        *api.endpoints(nobody, {}, Lanes({})),
        *targets_api.endpoints(nobody, nobody, nobody),
        *pauses_api.endpoints(nobody, nobody, nobody, nobody, nobody),
        *digests_api.endpoints(nobody),
        *waiting_api.endpoints(nobody, nobody),
        *receipts_api.endpoints(nobody, nobody, nobody),
        *skipped_api.endpoints(nobody, Lanes({}), NO_CATEGORIES),
        *endpoints_api.endpoints(nobody, {}, Lanes({})),
        *endpoints_api.health_endpoints(nobody),
        *admin_api.endpoints(nobody, nobody, {}, Lanes({}), clock=nobody, ids=nobody),
        *sandbox.endpoints([], [], msgspec.Struct),
        *rehearsals_api.endpoints(rehearsals_api.Rehearsals(b"{}", {"sms": ["twilio"]})),
        *templates_api.endpoints(nobody, nobody, nobody),
        *templates_sending.endpoints(nobody, nobody),
        *preferences_api.endpoints(nobody, NO_CATEGORIES),
        *consent_api.endpoints(nobody),
        *rights.endpoints(nobody, nobody, {}),
        *people.endpoints(nobody, NO_CATEGORIES, nobody, links=True),
        *callbacks.endpoints(reported, dict.fromkeys(reported, ()), nobody, nobody, nobody),
        *suppressions.endpoints(nobody, nobody, nobody),
        *payment_api.endpoints(nobody, "the-service-token"),
        *subscription_api.endpoints(nobody),
        *webhooks.endpoints(nobody, nobody, {}, nobody, nobody),
        *queues_api.endpoints([], nobody, nobody),
        *http_events.endpoints(nobody, nobody),
        *streams_api.endpoints(nobody, InboxChoices(nobody, nobody), tickets=nobody, rules=nobody, clock=nobody),
        *console_api.endpoints(console_api.Console(nobody, Lanes({}), nobody, nobody, blueprint="", pages=[])),
        *console_templates.endpoints(console_templates.CatalogueReader(nobody, nobody, nobody, [])),
        *console_api.stream_endpoints(nobody, 0, 30.0),
        *health.endpoints(health.Readiness(), health.Checks({}, {})),
    ]
