"""Small plots of block characters for a terminal."""

from collections.abc import Sequence

_HEIGHTS = "▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉"


def sparkline(values: Sequence[float], width: int) -> str:
    """The newest `width` values, scaled to the highest of them; all zeros draw the lowest bar."""
    shown = list(values)[-width:]
    most = max(shown, default=0)
    if most <= 0:
        return _HEIGHTS[0] * len(shown)
    return "".join(_HEIGHTS[min(len(_HEIGHTS) - 1, int(value / most * (len(_HEIGHTS) - 1) + 0.5))] for value in shown)


def bar(value: float, most: float, width: int) -> str:
    """A bar of `value / most` of the width; any value above 0 draws at least an eighth of a character."""
    eighths = round(value / most * width * 8) if most else 0
    eighths = max(eighths, 1) if value else eighths
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """The value at this share of values in ascending order; None without values."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else None


def histogram(values: Sequence[float], edges: Sequence[float]) -> list[tuple[float, int]]:
    """How many values lie at or below each edge and above the previous one; the last edge counts all larger values."""
    counts = [0] * len(edges)
    for value in values:
        counts[next((place for place, edge in enumerate(edges) if value <= edge), len(edges) - 1)] += 1
    return list(zip(edges, counts, strict=True))
