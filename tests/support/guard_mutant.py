"""The carillon command in which a request can switch one guard off: the header `X-Mutant` names it.

One process stands for all mutants, each for as long as one request lasts.
"""

from contextvars import ContextVar
from typing import Any

import msgspec

from carillon import cli
from carillon.web import gate, guard
from carillon.web.about import About, Owned, Reach
from carillon.web.application import Application
from carillon.web.problems import Problem
from carillon.web.request import Caller, Reply, Request
from tests.support.mutant import vars_of

VICTIM = Reach(tenant_id="acme", user_id="ada")
_off: ContextVar[str] = ContextVar("off", default="")


def _replaced(module: Any, name: str, value: Any) -> Any:
    # A guard that was renamed must fail here, not pass as a mutant that changes nothing.
    before = vars(module)[name]
    vars(module)[name] = value
    return before


def _watch_requests() -> None:
    reply = Application.reply

    async def watched(self: Application, request: Request) -> Reply:
        _off.set(request.header(b"x-mutant") or "")
        return await reply(self, request)

    vars_of(Application, reply=watched)


def _credentials() -> None:
    known = gate.Gate._known  # noqa: SLF001 - the guard itself

    async def anybody(self: gate.Gate, request: Request) -> Caller:
        return Caller() if _off.get() == "credentials" else await known(self, request)

    vars_of(gate.Gate, _known=anybody)


def _head_checks() -> None:
    for name, word in (("check_role", "role"), ("check_proof", "proof")):

        def unless(request: Request, about: About, word: str = word, name: str = name) -> None:
            if _off.get() != word:
                checks[name](request, about)

        checks[name] = _replaced(gate, name, unless)


checks: dict[str, Any] = {}


def _names() -> None:
    def tenant(caller: Caller, named: str | None, place: Any) -> str | None:
        return named or caller.tenant_id if _off.get() == "named_tenant" else checks["tenant"](caller, named, place)

    def person(caller: Caller, about: About, look: Any, *, bound: bool) -> str | None:
        found: str | None = checks["person"](caller, about, look, bound=bound and _off.get() != "named_person")
        return found

    checks["tenant"] = _replaced(guard, "_tenant", tenant)
    checks["person"] = _replaced(guard, "_person", person)


def _owned() -> None:
    async def owned(request: Request, declared: Owned, *, bound: bool) -> Reach:
        if _off.get() not in {"owned_tenant", "owned_by_caller"}:
            reach: Reach = await checks["owned"](request, declared, bound=bound)
            return reach
        # The ledger looks among all tenants, as it does for operators: its own filter is the second wall.
        anywhere = _off.get() == "owned_tenant"
        found = await declared.find(request.params[declared.param], None if anywhere else request.caller.tenant_id)
        if found is None or (anywhere and bound and found.user_id != request.caller.user_id):
            raise Problem("NOT_FOUND", declared.missing)
        if not anywhere and found.tenant_id != request.caller.tenant_id:
            raise Problem("NOT_FOUND", declared.missing)
        request.found = found.value
        return Reach(tenant_id=found.tenant_id, user_id=found.user_id, bound=bound)

    checks["owned"] = _replaced(guard, "_owned", owned)


def _reach() -> None:
    """What the guard lets a handler reach is another's instead: as if nobody had computed it from the caller."""
    fields = {"reach_tenant": "tenant_id", "reach_person": "user_id", "reach_sender": "sent_by"}

    async def reach_of(request: Request, about: About, *, people_reach_tenant: bool) -> Reach:
        reach: Reach = await checks["reach_of"](request, about, people_reach_tenant=people_reach_tenant)
        field = fields.get(_off.get())
        return reach if field is None else msgspec.structs.replace(reach, **{field: getattr(VICTIM, field)})

    checks["reach_of"] = _replaced(gate, "reach_of", reach_of)


def install() -> None:
    for each in (_watch_requests, _credentials, _head_checks, _names, _owned, _reach):
        each()


if __name__ == "__main__":
    install()
    cli.main()
