"""Statements of the ledger with one condition taken out, and which test files look at which statement."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from hashlib import blake2b

import msgspec

SQLITE = (
    *("enrol", "enrolled_ticket", "take_due", "own_lease", "ticket_anew"),
    *("claimable", "expired", "lapse", "ripe", "queue_tickets", "claim_candidates", "claim", "end_leases", "extend"),
    *("settle_finished", "settle_judge", "settle", "settle_note", "settle_answered"),
)
POSTGRES = (
    *("enrol", "winners", "claim_enrolled", "queue_unclaimed"),
    *("claim", "extend", "lost_tickets", "put_back", "reset_expired"),
    *("settle_finished", "settle"),
)
STATEMENTS: Mapping[str, tuple[str, ...]] = {"sqlite": SQLITE, "postgres": POSTGRES}
"""Acceptance, claim, lease and settlement; live streams and dead letters have tests of their own."""

_ACCEPT = (
    "intake",
    "synchronous",
    "claim_on_accept",
    "keys",
    "timing",
    "preferences",
    "waiting",
    "digests",
    "skipped",
    "suppressions",
    "turns",
)
_CLAIM = (
    "floors",
    "backlog",
    "due",
    "turns",
    "leases",
    "ticket_paths",
    "lost_tickets",
    "chains",
    "preferences",
    "races",
    "suppressions",
    "waiting",
)
_SETTLE = ("settle", "settle_by_place", "adoption", "told", "leases", "outbox", "history")
NEAREST: Mapping[str, tuple[str, ...]] = {
    "enrol": _ACCEPT,
    "winners": _ACCEPT,
    "enrolled_ticket": _ACCEPT,
    "take_due": ("synchronous", "claim_on_accept", "leases"),
    "own_lease": ("synchronous", "claim_on_accept", "leases"),
    "ticket_anew": ("synchronous", "claim_on_accept", "ticket_paths"),
    "claim_enrolled": ("synchronous", "claim_on_accept", "leases"),
    "queue_unclaimed": ("synchronous", "claim_on_accept", "due"),
    "extend": ("leases", "backlog", "adoption", "lost_tickets"),
    "end_leases": ("leases", "settle"),
    "lost_tickets": ("lost_tickets", "leases"),
    "put_back": ("lost_tickets", "leases"),
    "reset_expired": ("lost_tickets", "leases"),
    **dict.fromkeys(("claimable", "expired", "lapse", "ripe", "queue_tickets", "claim_candidates", "claim"), _CLAIM),
    **dict.fromkeys(("settle_finished", "settle_judge", "settle", "settle_note", "settle_answered"), _SETTLE),
}
"""By statement: the files tests/contract/test_ledger_*.py that are asked first."""

_BEGIN = re.compile(r"\b(?:WHERE|AND)\b")
_WORD = re.compile(
    r"\b(?:AND|OR|WHERE|ORDER|GROUP|LIMIT|OFFSET|RETURNING|UNION|FOR|CROSS|LEFT|JOIN|ON|CASE|WHEN|THEN|ELSE|END)\b|[();]"
)
_OPENS, _CLOSES = {"(", "CASE"}, {")", "END"}
_COMMENT = re.compile(r"--[^\n]*")


class Mutant(msgspec.Struct, frozen=True):
    """One condition of one statement, and the statement without it."""

    engine: str
    statement: str
    condition: str
    nth: int
    """Which of the equal conditions of the statement."""
    text: str
    original: str

    @property
    def key(self) -> str:
        """Names it for as long as its statement stays as it is."""
        told = blake2b(self.original.encode(), digest_size=4).hexdigest()
        return f"{self.engine} {self.statement} {told} {self.nth} {self.condition}"


def mutants_of(engine: str, statement: str, text: str) -> Iterator[Mutant]:
    """The statement without each of its conditions: those behind WHERE, AND, WHEN and ON CONFLICT.

    A condition stays in its place and no longer decides: what it names, parameters above all, is still there.
    Comments stay too, because some of them mark passages.
    """
    bare = _COMMENT.sub(lambda found: " " * len(found[0]), text)
    seen: Counter[str] = Counter()

    def mutant(condition: str, begin: int, end: int, instead: str) -> Mutant:
        seen[condition] += 1
        changed = text[:begin] + instead + text[end:]
        return Mutant(engine, statement, condition, seen[condition], changed, text)

    for found in _BEGIN.finditer(bare):
        begin, end = _trimmed(bare, found.end(), _end(bare, found.end()))
        if begin < end:
            yield mutant(" ".join(bare[begin:end].split()), begin, end, f"(TRUE OR ({text[begin:end]}))")
    for found in re.finditer(r"\bWHEN\b(?= r\.)", bare):
        begin, end = _trimmed(bare, found.end(), bare.index("THEN", found.end()))
        condition = " ".join(bare[begin:end].split())
        yield mutant(f"WHEN {condition}", begin, end, f"(TRUE OR ({text[begin:end]}))")
        yield mutant(f"WHEN {condition} THEN ...", begin, end, f"(FALSE AND ({text[begin:end]}))")
    for found in re.finditer(r"ON CONFLICT[^;]*?DO NOTHING", bare):
        yield mutant(found[0], found.start(), found.end(), "")


def mutated(mutant: Mutant, text: str) -> str:
    """The same condition taken out of the statement as a ledger with other parts has it; if it is there."""
    for other in mutants_of(mutant.engine, mutant.statement, text):
        if (other.condition, other.nth) == (mutant.condition, mutant.nth):
            return other.text
    return text


def _trimmed(text: str, begin: int, end: int) -> tuple[int, int]:
    while begin < end and text[begin].isspace():
        begin += 1
    while end > begin and text[end - 1].isspace():
        end -= 1
    return begin, end


def _end(text: str, begin: int) -> int:
    """Where the condition that begins here ends: at the next word or bracket that is not inside its own brackets."""
    depth = 0
    for found in _WORD.finditer(text, begin):
        word = found[0]
        if word in _OPENS:
            depth += 1
        elif depth == 0:
            return found.start()
        elif word in _CLOSES:
            depth -= 1
    return len(text)
