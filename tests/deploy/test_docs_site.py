"""The documentation as a site: every page is in its navigation, and what leaves docs/ is not a dead link there."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.docs_site import beyond, rewritten
from tests.support import docs_pages
from tests.support.sources import ROOT

DOCS = ROOT / "docs"
SITE: Any = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
PAGES = sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def listed(nav: list[dict[str, Any]]) -> Iterator[str]:
    for entry in nav:
        for target in entry.values():
            if isinstance(target, str):
                yield target
            else:
                yield from listed(target)


def test_every_page_is_in_the_navigation_once() -> None:
    assert sorted(listed(SITE["nav"])) == PAGES, "add it to mkdocs.yml, and to docs/README.md"


def test_every_page_can_be_reached_from_the_index() -> None:
    seen: set[Path] = set()
    waiting = [DOCS / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in seen:
            seen.add(page)
            targets = ((page.parent / link.partition("#")[0]).resolve() for link in docs_pages.links(page))
            waiting += [target for target in targets if target.suffix == ".md" and DOCS in target.parents]
    assert {str(page.relative_to(DOCS)) for page in seen} == set(PAGES)


def test_nothing_is_fetched_from_elsewhere() -> None:
    assert SITE["theme"]["font"] is False
    assert "extra_javascript" not in SITE
    assert "extra_css" not in SITE


def test_links_within_are_checked_when_it_is_built() -> None:
    assert set(SITE["validation"]["links"].values()) | set(SITE["validation"]["nav"].values()) == {"warn"}
    recipe = (ROOT / "Makefile").read_text().split("\ndocs:")[1].split("\n\n")[0]
    assert "mkdocs build --strict" in recipe
    assert "--quiet" not in recipe, "a warning that is not printed is not counted either"


@pytest.mark.parametrize("page", PAGES)
def test_what_leaves_the_site_exists(page: str) -> None:
    for link in docs_pages.links(DOCS / page):
        outside = beyond(page, link)
        assert outside is None or (ROOT / outside).exists(), link


@pytest.mark.parametrize(
    ("target", "outside"),
    [
        ("../../deploy/compose.yaml", "deploy/compose.yaml"),
        ("../../README.md#layout", "README.md"),
        ("../how-to/deploy.md", None),
        ("run-listo.md#receipts", None),
        ("#here", None),
        ("https://example.org/../../x", None),
    ],
)
def test_where_a_link_leads(target: str, outside: str | None) -> None:
    assert beyond("how-to/observe.md", target) == outside


def test_links_outside_become_text_or_lead_to_the_repository() -> None:
    text = "see [the unit](../../deploy/carillon.service), ![a picture](a.png) and [how](deploy.md)"
    assert rewritten(text, "how-to/x.md", None) == "see the unit, ![a picture](a.png) and [how](deploy.md)"
    there = rewritten(text, "how-to/x.md", "https://git.example.org/carillon/")
    assert "(https://git.example.org/carillon/blob/main/deploy/carillon.service)" in there
