"""The leases of this process: what is still open of each batch of claims."""

from collections.abc import Iterable, Sequence

import msgspec

from carillon.domain.claims import Claim

LIVE = "sse"
"""The channel of live streams, whose routes hold their leases in their own rows, and the usual name of its provider."""


class Ended(msgspec.Struct, frozen=True):
    """What a settlement does to leases, beside the routes."""

    leases: list[int]
    """Nothing is left of them."""
    capped: list[int]
    """LeaseBook of groups with a cap that stay, and lose the settled claims."""
    tokens: list[int]
    """The settled claims among them."""


NOTHING_ENDED = Ended([], [], [])


class LeaseBook:
    """Says which leases have nothing left once some claims are settled.

    A lease that nobody ends runs out, and then none of its routes has its ticket any more. So a lease may stay too
    long, and never ends too early: a claim counts as settled only when its settlement is committed. That holds for a
    lost claim too, which another worker has or somebody ended: its call may go on, and keeps its place until it ends.
    """

    def __init__(self) -> None:
        self._open: dict[int, set[int]] = {}
        self._over: set[int] = set()

    def took(self, claims: Iterable[Claim]) -> None:
        """Note new claims."""
        for lease, tokens in _by_lease(claims).items():
            self._open.setdefault(lease, set()).update(tokens)

    def known(self) -> list[int]:
        """Leases of claims that this process has got and not settled."""
        return list(self._open)

    def ended_by(self, claims: Sequence[Claim]) -> "Ended":
        """What the settlement of these claims ends and frees."""
        settled = _by_lease(claims)
        capped = {claim.lease for claim in claims if claim.group < 0 and claim.lease}
        done = {lease for lease, tokens in settled.items() if self._open.get(lease) == tokens} | self._over
        partly = sorted(capped - done)
        return Ended(sorted(done), partly, [token for lease in partly for token in settled[lease]])

    def settled(self, claims: Iterable[Claim], ended: "Ended") -> None:
        """Note that the settlement of these claims is committed, with what it ended."""
        for lease, tokens in _by_lease(claims).items():
            left = self._open.get(lease)
            if left is not None:
                left -= tokens
                if not left:
                    del self._open[lease]
                    # Two settlements at once each left the other's claims open: the next one ends the lease.
                    self._over.add(lease)
        self._over.difference_update(ended.leases)


def _by_lease(claims: Iterable[Claim]) -> dict[int, set[int]]:
    """The tokens of claims that share a lease; claims whose own row has the lease are left out."""
    found: dict[int, set[int]] = {}
    for claim in claims:
        lease = claim.lease
        if lease in found:
            found[lease].add(claim.token)
        elif lease:
            found[lease] = {claim.token}
    return found
