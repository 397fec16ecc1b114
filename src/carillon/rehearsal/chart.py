"""The chart of a rehearsal as an SVG drawing, readable on light and dark pages."""

from collections.abc import Callable, Sequence
from html import escape

from carillon.upkeep.rehearsals.figures import Figures, Slice
from carillon.upkeep.rehearsals.plan import RehearsalPlan

WIDTH, HEIGHT, LEFT, RIGHT, TOP = 900, 190, 70, 34, 34
BAND = 150
TALL = TOP + 2 * HEIGHT + 40
_STYLE = """
  .ground { fill: #ffffff } .text { fill: #1f2933; font: 13px system-ui, sans-serif } .quiet { fill: #5b6770 }
  .line { stroke: #d5dbe0 } .delivered { fill: #2f7d57 } .late { fill: #b7791f } .lost { fill: #b3261e }
  .waiting { fill: #3567b5; fill-opacity: .25; stroke: #3567b5; stroke-width: 1.5 }
  .outage { fill: #b3261e; fill-opacity: .10 }
  .breaker { fill: #6b4fa0 }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #14181c } .text { fill: #e6ebef } .quiet { fill: #9aa7b2 } .line { stroke: #2f3a44 }
    .delivered { fill: #5cc493 } .late { fill: #e0a94a } .lost { fill: #f2837a }
    .waiting { fill: #8ab4ff; stroke: #8ab4ff } .outage { fill: #f2837a; fill-opacity: .16 } .breaker { fill: #b9a2ea }
  }"""


def chart(figures: Figures, plan: RehearsalPlan) -> str:
    """What was delivered, late and given up, and what waited, over the time; outages are shaded."""
    slices = figures.slices
    ends = max(figures.seconds, 1.0)

    def across(seconds: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(seconds, ends) / ends

    told = escape(_told(figures))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {TALL}" role="img" aria-label="{told}">',
        f"<style>{_STYLE}\n</style>",
        f'<rect class="ground" width="{WIDTH}" height="{TALL}"/>',
        *_outages(plan, across),
        *_stacked(slices, across, TOP),
        *_waiting(slices, across, TOP + HEIGHT),
        *_breakers(figures, across, TOP + 2 * HEIGHT - 26),
        *_times(ends, across),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _told(figures: Figures) -> str:
    return (
        f"{figures.accepted} accepted, {figures.delivered} delivered, {figures.late} late, {figures.given_up} given up"
    )


def _outages(plan: RehearsalPlan, across: Callable[[float], float]) -> list[str]:
    found = []
    for one in plan.outages:
        left, right = across(one.begins), across(one.ends)
        found.append(
            f'<rect class="outage" x="{left:.1f}" y="{TOP - 16}" width="{max(1.0, right - left):.1f}" '
            f'height="{2 * HEIGHT - 10}"/>'
        )
        found.append(
            f'<text class="text quiet" x="{left + 4:.1f}" y="{TOP - 20}">{escape(one.provider)} {one.kind}</text>'
        )
    return found


def _stacked(slices: Sequence[Slice], across: Callable[[float], float], top: float) -> list[str]:
    most = max((one.delivered + one.given_up for one in slices), default=0) or 1
    width = max(0.5, across(slices[1].begins) - across(0) - 0.5) if len(slices) > 1 else 4.0
    found = [_axis(top, most, "delivered, late, given up")]
    for one in slices:
        foot = top + BAND
        for name, number in (("delivered", one.delivered - one.late), ("late", one.late), ("lost", one.given_up)):
            height = BAND * number / most
            foot -= height
            if number:
                found.append(
                    f'<rect class="{name}" x="{across(one.begins):.1f}" y="{foot:.1f}" width="{width:.1f}" '
                    f'height="{height:.1f}"/>'
                )
    return found


def _waiting(slices: Sequence[Slice], across: Callable[[float], float], top: float) -> list[str]:
    most = max((one.waiting for one in slices), default=0) or 1
    points = " ".join(f"{across(one.begins):.1f},{top + BAND * (1 - one.waiting / most):.1f}" for one in slices)
    foot = f"{across(slices[-1].begins):.1f},{top + BAND} {across(0):.1f},{top + BAND}" if slices else ""
    return [_axis(top, most, "waiting"), f'<polygon class="waiting" points="{points} {foot}"/>']


def _axis(top: float, most: int, title: str) -> str:
    return (
        f'<line class="line" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{top + BAND}" y2="{top + BAND}"/>'
        f'<text class="text quiet" x="{LEFT - 8}" y="{top + 10}" text-anchor="end">{most:,}</text>'
        f'<text class="text quiet" x="{LEFT - 8}" y="{top + BAND}" text-anchor="end">0</text>'
        f'<text class="text" x="{LEFT}" y="{top + BAND + 16}">{title}</text>'
    )


def _breakers(figures: Figures, across: Callable[[float], float], top: float) -> list[str]:
    names = list(dict.fromkeys(one.provider for one in figures.breakers))[:3]
    found = []
    for one in figures.breakers:
        if one.provider in names:
            right = across(figures.seconds if one.ends is None else one.ends)
            left, y = across(one.begins), top + 7 * names.index(one.provider)
            found.append(
                f'<rect class="breaker" x="{left:.1f}" y="{y:.1f}" width="{max(1.0, right - left):.1f}" height="4">'
                f"<title>the breaker of {escape(one.provider)} was not closed</title></rect>"
            )
    return found


def _times(ends: float, across: Callable[[float], float]) -> list[str]:
    steps = (60, 300, 600, 1800, 3600, 7200, 21_600, 43_200, 86_400, 604_800)
    step = next((one for one in steps if ends / one <= 8), steps[-1])  # noqa: PLR2004 - labels that fit
    found = []
    at = 0.0
    while at <= ends:
        label = f"{at / 3600:g} h" if step >= 1800 else f"{at / 60:g} min"  # noqa: PLR2004 - half an hour
        place = f'x="{across(at):.1f}" y="{TALL - 16}" text-anchor="middle"'
        found.append(f'<text class="text quiet" {place}>{label}</text>')
        at += step
    return found
