"""The comparison as a picture for the README: bars, no library."""

from collections.abc import Sequence
from html import escape

from bench.measure import Figure

WIDTH, BAR, GAP, LEFT, TOP = 760, 22, 10, 250, 46
OURS, OTHERS, INK = "#2f6f8f", "#b9c4cc", "#25323a"


def bars(title: str, figures: Sequence[Figure]) -> str:
    """An SVG with one bar a figure, longest first, Carillon's in colour."""
    ordered = sorted(figures, key=lambda figure: -figure.median)
    most = max(figure.median for figure in ordered)
    height = TOP + len(ordered) * (BAR + GAP) + 14
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" font-family="sans-serif">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="6" fill="#ffffff"/>',
        f'<text x="16" y="28" font-size="16" fill="{INK}">{escape(title)}</text>',
    ]
    for place, figure in enumerate(ordered):
        y = TOP + place * (BAR + GAP)
        length = max(2.0, (WIDTH - LEFT - 110) * figure.median / most)
        colour = OURS if figure.name.startswith("Carillon") else OTHERS
        middle = y + BAR * 0.7
        lines += [
            _text(LEFT - 10, middle, figure.name, anchor="end"),
            f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" rx="3" fill="{colour}"/>',
            _text(LEFT + length + 8, middle, f"{figure.median:,.0f}"),
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"


def _text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="13" text-anchor="{anchor}" fill="{INK}">{escape(words)}</text>'
