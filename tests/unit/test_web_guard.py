"""The guard before every endpoint: who reaches the handler, and whose data it then touches."""

import asyncio
import hashlib
import json
import re
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec
import pytest

import carillon
from carillon.domain.errors import ConfigurationError
from carillon.domain.keys import ApiKey
from carillon.web import (
    KNOWN,
    PROOF,
    About,
    Callers,
    Endpoint,
    Found,
    Owned,
    Reach,
    Reply,
    Request,
    WebSettings,
    in_body,
    in_path,
)
from carillon.web.application import Application
from carillon.web.auth import JwtSettings
from carillon.web.guard import reach_of_item
from carillon.web.problems import Problem
from carillon.web.request import Caller
from tests.support.declared import declared
from tests.unit.test_web_auth import SECRET, token
from tests.unit.web_parts import endpoint

UUID = "0198d2a4-5c1e-7d30-9a57-3f0c2b9e4d11"
KEY = "ck_abcdefgh_" + "s" * 43
ADA, ACME, ORDERS = "ada", "acme", "orders"
"""Everything the calls below name belongs to Ada of the tenant acme, and acme's service `orders` sent it."""

CALLERS: dict[str, dict[str, Any] | None] = {
    "nobody": None,
    "ada": {"sub": ADA, "tenant_id": ACME},
    "bob": {"sub": "bob", "tenant_id": ACME},
    "ada elsewhere": {"sub": ADA, "tenant_id": "other"},
    "admin": {"sub": "root", "tenant_id": ACME, "role": "admin"},
    "admin elsewhere": {"sub": "root", "tenant_id": "other", "role": "admin"},
    "operator": {"sub": "root", "tenant_id": None, "role": "admin"},
    "service": {},
    "other service": {"sub": "invoices", "tenant_id": ACME, "role": "service"},
    "service elsewhere": {"sub": "orders", "tenant_id": "other", "role": "service"},
}

# Who reaches the handler with Ada's data in reach. For all others: the status of the refusal, or `elsewhere` where the
# handler runs over what is theirs. The order is that of CALLERS.
EVERYBODY_SEES = ["yes", "yes", "yes", "yes", "yes", "yes", "yes", "yes", "yes", "yes"]
WELCOMED = ["elsewhere", "yes", "yes", "elsewhere", "yes", "elsewhere", "yes", "yes", "yes", "elsewhere"]
PROOF_ALONE = ["401", "401", "401", "401", "401", "401", "401", "401", "401", "401"]
OF_THE_TENANT = ["401", "yes", "yes", "elsewhere", "yes", "elsewhere", "yes", "yes", "yes", "elsewhere"]
NAMED_WIDE = ["401", "yes", "yes", "403", "yes", "403", "yes", "yes", "yes", "403"]
NAMED_OWN = ["401", "yes", "403", "403", "yes", "403", "yes", "yes", "yes", "403"]
FOUND_WIDE = ["401", "yes", "yes", "404", "yes", "404", "yes", "yes", "yes", "404"]
FOUND_OWN = ["401", "yes", "404", "404", "yes", "404", "yes", "yes", "404", "404"]
SEARCH_OWN = ["401", "yes", "403", "403", "yes", "403", "yes", "yes", "elsewhere", "403"]
PERSON = ["401", "yes", "403", "elsewhere", "yes", "elsewhere", "yes", "403", "403", "403"]
PERSON_OF_TENANT = ["401", "yes", "403", "403", "yes", "403", "yes", "403", "403", "403"]
ONESELF = ["401", "yes", "elsewhere", "elsewhere", "elsewhere", "elsewhere", "elsewhere", "400", "400", "400"]
SUBSCRIPTION = ["401", "yes", "404", "404", "yes", "404", "yes", "404", "404", "404"]
ADMINS = ["401", "403", "403", "403", "yes", "elsewhere", "yes", "403", "403", "403"]
ADMINS_NAMED = ["401", "403", "403", "403", "yes", "403", "yes", "403", "403", "403"]
ADMINS_FOUND = ["401", "403", "403", "403", "yes", "404", "yes", "403", "403", "403"]
OPERATORS_ONLY = ["401", "403", "403", "403", "403", "403", "yes", "403", "403", "403"]
SERVICES_WIDE = ["401", "403", "403", "403", "yes", "403", "yes", "yes", "yes", "403"]
SERVICES_OWN = ["401", "403", "403", "403", "yes", "403", "yes", "yes", "elsewhere", "403"]
SERVICES_TOO = ["401", "403", "403", "403", "yes", "elsewhere", "yes", "yes", "yes", "elsewhere"]

EXPECTED: dict[str, tuple[list[str], list[str]]] = {
    name: (wide, own)
    for names, wide, own in [
        ("send explain", NAMED_WIDE, NAMED_OWN),
        ("health", WELCOMED, WELCOMED),
        ("searchNotifications", NAMED_WIDE, SEARCH_OWN),
        ("showNotification cancelNotification reportReceipt", FOUND_WIDE, FOUND_OWN),
        (
            (
                "showTemplate listTemplates changeTemplate deleteTemplate listTemplateVersions publishTemplate"
                " listDeadLetters redriveDeadLetters listRedrives listFailedNotifications listProviders"
                " listActions consoleTemplates listRefunds listDigests showDigest cancelWaiting changeWaiting"
            ),
            ADMINS,
            ADMINS,
        ),
        (
            "createTemplate redriveFailed redriveSkipped replayEndpoint addSuppression showPerson listCategories",
            ADMINS_NAMED,
            ADMINS_NAMED,
        ),
        ("testSendTemplate listSuppressions removeSuppression exportPerson erasePerson", ADMINS_NAMED, ADMINS_NAMED),
        ("renderTemplate", ADMINS_NAMED, ADMINS_NAMED),
        ("retryNotification stopRedrive showPayment liftSuppression", ADMINS_FOUND, ADMINS_FOUND),
        ("sendBatch readTemplateByCode consoleSurface", OF_THE_TENANT, OF_THE_TENANT),
        (
            (
                "listSandboxMessages listDrills showDrill beginDrill endDrill listQueues listJobLogs listFailedMessages"
                " listQueueActions requeueFailedMessages consoleOverview consoleHistory consoleLive consoleStreams"
                " listTargets listEndpoints enableEndpoint listPauses pauseCalls resumeCalls forceBreaker rehearse"
            ),
            OPERATORS_ONLY,
            OPERATORS_ONLY,
        ),
        (
            "showPreferences replacePreferences changePreferences createSubscription showUsage",
            PERSON_OF_TENANT,
            PERSON_OF_TENANT,
        ),
        ("showOwnPreferences replaceOwnPreferences changeOwnPreferences", ONESELF, ONESELF),
        (
            "streamNotifications makeStreamTicket acknowledgeNotification showInbox countUnread markRead",
            PERSON,
            PERSON,
        ),
        ("archiveNotifications showInboxChoices changeInboxChoices", PERSON, PERSON),
        ("showSubscription renewSubscription changePlan showPaymentEvent", SUBSCRIPTION, SUBSCRIPTION),
        ("cancelSubscription", SUBSCRIPTION, SUBSCRIPTION),
        ("postEvent", SERVICES_TOO, SERVICES_TOO),
        ("makePreferenceLink", SERVICES_WIDE, SERVICES_OWN),
        ("processPayment", PROOF_ALONE, PROOF_ALONE),
        ("twilioSmsStatus sendgridEvents fcmDeliveryStatus azureEmailEvents", EVERYBODY_SEES, EVERYBODY_SEES),
        ("takePaymentEvent healthz readyz showPersonPage changePersonPage", EVERYBODY_SEES, EVERYBODY_SEES),
    ]
    for name in names.split()
}


class Keys:
    """Knows one key: a service of acme."""

    async def api_key(self, key_id: str) -> ApiKey | None:
        digest = hashlib.sha256(KEY.rpartition("_")[2].encode()).hexdigest()
        made = ApiKey(key_id=key_id, secret_hash=digest, tenant_id=ACME, role="user", name=ORDERS, created_at=0.0)
        return made if KEY.startswith(f"ck_{key_id}_") else None

    async def touch_api_key(self, key_id: str, every_seconds: float) -> None:
        pass


class Seen(NamedTuple):
    """What became of a call: the status, and the reach of the handler if it ran."""

    status: int
    reach: Reach | None
    sends: bool = False
    """True for calls that send: a service does so for everybody of its tenant."""

    def __str__(self) -> str:
        reach = self.reach
        if reach is None:
            return str(self.status)
        covers = (reach.every_tenant or reach.tenant_id == ACME) and reach.user_id in {None, ADA}
        covers = covers and (self.sends or reach.sent_by in {None, ORDERS})
        return "yes" if covers else "elsewhere"


def spied(one: Endpoint, reached: list[Reach]) -> Endpoint:
    """The endpoint with a handler that notes its reach, and with a ledger that knows Ada's things."""

    async def call(request: Request) -> Reply:
        reached.append(request.reach)
        return Reply(200, {})

    async def find(*_: str | None) -> Found | None:
        return Found("it", ACME, ADA, ORDERS if one.about.shared else None)

    about = one.about
    if about.owned is not None:
        about = msgspec.structs.replace(about, owned=msgspec.structs.replace(about.owned, find=find))
    return msgspec.structs.replace(one, call=call, about=about)


async def called(one: Endpoint, headers: dict[str, str], settings: WebSettings, **more: Any) -> Seen:
    reached: list[Reach] = []
    served = Application([spied(one, reached)], settings)
    body = b"" if one.body is None else json.dumps(_body(one)).encode()
    kind = "application/json" if one.raw is None else one.raw.media_types[0]
    told = {"host": "localhost", "content-type": kind, "content-length": str(len(body)), "x-admin-override": "true"}
    scope = {
        "type": "http",
        "method": one.method,
        "path": _path(one),
        "query_string": urlencode(_query(one)).encode(),
        "headers": [(name.encode(), value.encode()) for name, value in {**told, **headers}.items()],
        "client": ("192.0.2.1", 1),
        **more,
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    reply = await served.reply(served.request(scope, receive))
    return Seen(reply.status, reached[0] if reached else None, one.name in {"send", "sendBatch", "explain"})


def _path(one: Endpoint) -> str:
    people = {place.name for place in one.about.person if place.part == "path"}
    return re.sub(r"\{(\w+)\}", lambda found: ADA if found[1] in people else UUID, one.path)


def _places(one: Endpoint, part: str) -> dict[str, str]:
    about = one.about
    found = {place.name: ADA for place in about.person if place.part == part}
    if about.tenant is not None and about.tenant.part == part:
        found[about.tenant.name] = ACME
    return found


def _query(one: Endpoint) -> dict[str, str]:
    return _places(one, "query")


def _body(one: Endpoint) -> dict[str, Any]:
    return {**next(iter(one.body_examples.values()), {}), **_places(one, "body")}


def credentials(name: str) -> dict[str, str]:
    claims = CALLERS[name]
    if claims is None:
        return {}
    if name == "service":
        return {"x-api-key": KEY}
    return {"authorization": f"Bearer {token(iss=None, aud=None, **claims)}"}


def asking(*, wide: bool) -> WebSettings:
    return WebSettings(jwt=JwtSettings(secret=SECRET), keys=Keys(), people_reach_tenant=wide)


ENDPOINTS = {one.name: one for one in declared()}


def test_every_endpoint_stands_in_the_table() -> None:
    assert set(ENDPOINTS) == set(EXPECTED)


def test_every_module_with_endpoints_is_asked() -> None:
    package = Path(carillon.__file__).parent
    files = [path for path in package.rglob("*.py") if re.search(r"\bEndpoint\(\s*\n", path.read_text())]
    asked = {one.call.__module__ for one in declared()}
    toolkit = {"carillon.web.endpoint", "carillon.upkeep.console.api", "carillon.doors.http.endpoints"}
    toolkit |= {"carillon.upkeep.consent.api", "carillon.web.files"}  # the tables above name their endpoints
    found = {".".join(("carillon", *path.relative_to(package).with_suffix("").parts)) for path in files}
    for module in found - toolkit:
        assert any(each == module or each.startswith(module) for each in asked), module


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("name", ENDPOINTS)
async def test_who_reaches_what(name: str, *, wide: bool) -> None:
    expected = EXPECTED[name][0 if wide else 1]
    settings = asking(wide=wide)
    found = {caller: str(await called(ENDPOINTS[name], credentials(caller), settings)) for caller in CALLERS}
    assert found == dict(zip(CALLERS, expected, strict=True))


@pytest.mark.parametrize("name", ["showNotification", "listQueues", "showPreferences", "addSuppression"])
async def test_control_a_guard_that_is_taken_away_is_seen(name: str) -> None:
    weak = msgspec.structs.replace(ENDPOINTS[name], about=KNOWN)
    found = [str(await called(weak, credentials(caller), asking(wide=True))) for caller in CALLERS]
    assert found != EXPECTED[name][0]


@pytest.mark.parametrize("wide", [True, False])
async def test_every_item_of_a_batch_is_judged_by_itself(*, wide: bool) -> None:
    caller = Caller("bob", "user", ACME)
    request = Request({"headers": []}, ok, 1, 1)  # type: ignore[arg-type]
    request.caller, request.reach = caller, Reach(tenant_id=ACME, bound=not wide)
    about = ENDPOINTS["send"].about
    assert reach_of_item(request, about, {}).user_id == "bob"
    assert reach_of_item(request, about, {"userId": "bob", "tenantId": ACME}).tenant_id == ACME
    with pytest.raises(Problem, match="another tenant"):
        reach_of_item(request, about, {"tenantId": "other"})
    if wide:
        assert reach_of_item(request, about, {"userId": ADA}).user_id == ADA
    else:
        with pytest.raises(Problem, match="another person"):
            reach_of_item(request, about, {"userId": ADA})


UNSAFE = [name for name, one in ENDPOINTS.items() if one.method != "GET"]


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "origin": "http://localhost"},
        {"origin": "https://evil.example"},
        {"origin": "http://localhost:3000"},
        {"origin": "null"},
    ],
)
async def test_a_page_of_another_site_reaches_no_unsafe_endpoint(headers: dict[str, str]) -> None:
    for name in UNSAFE:
        if name != "processPayment":
            assert (await called(ENDPOINTS[name], headers, WebSettings()))[:2] == (403, None), name


async def test_pages_of_our_own_and_programs_do() -> None:
    for headers in (
        {},
        {"sec-fetch-site": "same-origin", "origin": "http://localhost"},
        {"origin": "http://localhost"},
    ):
        for name in set(UNSAFE) - {"processPayment", "replaceOwnPreferences", "changeOwnPreferences"}:
            assert (await called(ENDPOINTS[name], headers, WebSettings())).status == 200, name
    # A browser adds no token by itself: a page that has one may be anywhere.
    shown = {**credentials("ada"), "origin": "https://app.example", "sec-fetch-site": "cross-site"}
    assert (await called(ENDPOINTS["send"], shown, asking(wide=True))).status == 200


async def test_a_person_is_not_read_across_sites_either() -> None:
    cross = {"sec-fetch-site": "cross-site"}
    assert (await called(ENDPOINTS["showInbox"], cross, WebSettings())).status == 403
    assert (await called(ENDPOINTS["listDeadLetters"], cross, WebSettings())).status == 200


@pytest.mark.parametrize("name", [name for name, one in ENDPOINTS.items() if one.raw is not None])
async def test_vendors_report_in_the_form_that_they_declare(name: str) -> None:
    one = msgspec.structs.replace(ENDPOINTS[name], body_examples={})
    wrong = {"content-type": "text/plain", "content-length": "2"}
    assert (await called(one, wrong, WebSettings()))[:2] == (415, None)
    packed = {"content-encoding": "gzip", "content-length": "2"}
    assert (await called(one, packed, WebSettings()))[:2] == (415, None)


def test_an_endpoint_that_says_nothing_does_not_start() -> None:
    with pytest.raises(ConfigurationError, match=r"GET /it \(showIt\) does not declare what it is about"):
        Endpoint(method="GET", path="/it", call=ok, name="showIt", summary="", answers=())


async def ok(_: Request) -> Reply:
    return Reply(200, {})


@pytest.mark.parametrize(
    ("about", "said"),
    [
        (About(callers=Callers.KNOWN, person=(in_path("who"),)), "which its path does not name"),
        (About(callers=Callers.KNOWN, owned=Owned(param="id", find=ok, missing="")), "which its path does not name"),  # type: ignore[arg-type]
        (About(callers=Callers.KNOWN, tenant=in_body("tenant")), "takes no body"),
        (About(callers=Callers.EVERYBODY, tenant=in_body("tenant")), "does not authenticate its callers"),
        (msgspec.structs.replace(PROOF, person=(in_path("who"),)), "does not authenticate its callers"),
    ],
)
def test_a_declaration_that_cannot_hold_does_not_start(about: About, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        endpoint("POST", "/it", about=about)


@pytest.mark.parametrize("named", [7.5, True, ["ada"], {"a": 1}, " ", "a\x01b"])
async def test_a_name_that_is_none_is_refused(named: Any) -> None:
    one = endpoint("POST", "/it", about=About(callers=Callers.KNOWN, person=(in_body("who"),)), body=dict)
    one = msgspec.structs.replace(one, body_examples={"x": {"who": named}})
    reached: list[Reach] = []
    served = Application([spied(one, reached)], WebSettings())
    body = json.dumps({"who": named}).encode()
    scope = {"type": "http", "method": "POST", "path": "/it", "query_string": b"", "client": ("192.0.2.1", 1)}
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"9")]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    reply = await served.reply(served.request({**scope, "headers": headers}, receive))
    assert (reply.status, reached) == (400, [])


async def test_a_slow_body_costs_only_its_sender() -> None:
    one = endpoint("POST", "/it", body=dict)
    served = Application([one], WebSettings(max_in_flight=1))
    come = asyncio.Event()

    async def slowly() -> dict[str, Any]:
        await come.wait()
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def at_once() -> dict[str, Any]:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"2")]
    scope = {"type": "http", "method": "POST", "path": "/it", "query_string": b"", "headers": headers}
    slow = [asyncio.create_task(served.reply(served.request(dict(scope), slowly))) for _ in range(50)]
    await asyncio.sleep(0)
    assert (await served.reply(served.request(dict(scope), at_once))).status == 200
    come.set()
    assert {reply.status for reply in await asyncio.gather(*slow)} == {200}
