"""Small plots out of letters, for terminals."""

from collections.abc import Sequence

_HEIGHTS = "▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉"


def sparkline(values: Sequence[float], width: int) -> str:
    """The newest so many values, the highest as high as the line; nothing at all is the lowest letter."""
    shown = list(values)[-width:]
    most = max(shown, default=0)
    if most <= 0:
        return _HEIGHTS[0] * len(shown)
    return "".join(_HEIGHTS[min(len(_HEIGHTS) - 1, int(value / most * (len(_HEIGHTS) - 1) + 0.5))] for value in shown)


def bar(value: float, most: float, width: int) -> str:
    """A part of the width; what is there at all is seen."""
    eighths = round(value / most * width * 8) if most else 0
    eighths = max(eighths, 1) if value else eighths
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """Of values in ascending order; None of no values."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else None


def histogram(values: Sequence[float], edges: Sequence[float]) -> list[tuple[float, int]]:
    """How many values stand at or below each edge and above the one before; the last takes the rest."""
    counts = [0] * len(edges)
    for value in values:
        counts[next((place for place, edge in enumerate(edges) if value <= edge), len(edges) - 1)] += 1
    return list(zip(edges, counts, strict=True))
