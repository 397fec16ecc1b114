"""The protocols as Promela models: the shipped rules hold in every order of steps, and the known-bad ones do not."""

import pytest

from tests.support.spin import MODELS, Citation, check, citations, missing, read

# The largest takes seconds, on a machine with little else to do.
pytestmark = pytest.mark.timeout(300)

ALL = sorted(path.stem for path in MODELS.glob("*.pml"))
SHIPPED = {
    "breaker": (),
    "intake": (),
    "lease": ("WORKERS=4", "CRASHES=3", "EXPIRIES=3"),
    "places": ("PROCESSES=3",),
    "rlist": ("WORKERS=4", "TWINS=3"),
    "ticket": (),
    "told": (),
}
LASTING = {
    "breaker": ("WORKERS=3",),
    "intake": ("READERS=2",),
    "lease": (),
    "places": ("ROUTES=4",),
    "rlist": ("WORKERS=2", "CRASHES=2", "LAPSES=1"),
    "ticket": ("LAPSES=1", "FAILURES=1"),
    "told": ("WORKERS=2",),
}
BAD = [
    ("lease", "STATE", "token=="),
    ("lease", "IDONLY", "token=="),
    ("lease", "BLINDEXTEND", "token=="),
    ("lease", "COUNTLATE", "calls<="),
    ("places", "NOFENCE", "calling<="),
    ("places", "EAGER", "calling<="),
    ("places", "ORPHAN", "calling<="),
    ("places", "LATE", "calling<="),
    ("rlist", "NAIVE", "<=2"),
    ("rlist", "MARK", "<=2"),
    ("rlist", "BLINDACK", "<=2"),
    ("rlist", "TWOSTEP", ">=2"),
    ("rlist", "PUMP2", ">=2"),
    ("rlist", "NOLOCK", "running==0"),
    ("ticket", "EARLY", "place==1"),
    ("ticket", "SAMETICKET", "leased["),
    ("ticket", "NOVOID", "queued["),
    ("ticket", "BLINDCANCEL", "mine["),
    ("told", "BLINDREPEAT", "applied==counted"),
    ("told", "BLINDNOTE", "told==settled"),
    ("told", "FORGET", "told==settled"),
    ("told", "TWICE", "told==settled"),
    ("ticket", "NOEXPIRY", "place==1"),
    ("intake", "FIRST", "rows[entry]>0"),
    ("intake", "NODEDUP", "rows[entry]<2"),
    ("breaker", "TWOSTEP", "probing<="),
    ("breaker", "LATE", "probing<="),
]
ENDLESS = [
    *((model, "NOEXPIRY") for model in ("breaker", "lease", "places")),
    ("rlist", "NOSWEEP"),
]


def test_every_model_is_checked() -> None:
    assert sorted(SHIPPED) == sorted(LASTING) == ALL == sorted({model for model, _, _ in BAD})


@pytest.mark.req("S3-33", "S3-38", "S3-39")
@pytest.mark.parametrize("model", ALL)
def test_the_shipped_rule_holds_in_every_order(model: str) -> None:
    found = check(model, *SHIPPED[model], quick=model == "lease")
    assert (found.errors, found.violated) == (0, "")
    assert found.states > 10_000
    # A step that never happens proves nothing.
    assert not found.unreached


def test_an_offset_that_moves_with_the_commit_would_hold_too() -> None:
    assert check("intake", "SAMETX").errors == 0


@pytest.mark.parametrize("model", ALL)
def test_everything_ends_once_the_world_stops_doing_harm(model: str) -> None:
    found = check(model, *LASTING[model], live=True)
    assert (found.errors, found.violated) == (0, "")


@pytest.mark.parametrize(("model", "rule"), ENDLESS)
def test_waiting_for_nobody_is_seen(model: str, rule: str) -> None:
    found = check(model, *LASTING[model], rule, live=True)
    assert (found.errors, found.violated) == (1, "acceptance cycle")


@pytest.mark.parametrize(("model", "rule", "broken"), BAD)
def test_a_known_bad_rule_is_caught(model: str, rule: str, broken: str) -> None:
    found = check(model, rule)
    assert found.errors == 1
    assert "assertion violated" in found.violated
    assert broken in found.violated


@pytest.mark.parametrize("model", ALL)
def test_steps_cite_what_exists(model: str) -> None:
    cited = citations((MODELS / f"{model}.pml").read_text())
    assert len(cited) > 4
    assert not list(missing(cited))


def test_a_citation_of_nothing_is_seen() -> None:
    text = "x // = ledger/postgres/ledger.sql settle\n// = ledger/postgres/ledger.sql settles\n  // = ledger/none.lua\n"
    cited = citations(text)
    assert cited[0] == Citation("ledger/postgres/ledger.sql", "settle")
    assert [line.split(":")[0] for line in missing(cited)] == ["ledger/postgres/ledger.sql", "ledger/none.lua"]


@pytest.mark.parametrize("model", ["rlist"])
def test_every_script_that_moves_a_message_is_in_the_model(model: str) -> None:
    scripts = {path.name for path in (MODELS.parent / "src" / "carillon" / "ledger" / "redis").glob("lists_*.lua")}
    # These add, count or drop at an operator's word; they take no message from one place to another.
    apart = {f"lists_{name}.lua" for name in ("cleanup", "depths", "enqueue", "forget", "log")}
    cited = {one.path.rpartition("/")[2] for one in citations((MODELS / f"{model}.pml").read_text())}
    assert scripts - apart == cited


def test_an_unfinished_search_is_no_answer() -> None:
    with pytest.raises(AssertionError):
        read("error: max search depth too small\nerrors: 0\n 5 states, stored")
