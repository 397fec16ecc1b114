"""Tests carry only requirement ids that exist."""

import re
from pathlib import Path

from scripts.requirements import OUR_OWN, WAIVED, carried_ids, document_ids, known_ids, report
from tests.support.sources import tree_of


def test_known_ids_are_unique_and_well_formed() -> None:
    known = known_ids()
    assert len(known) == len(set(known))
    assert not [name for name in known if not re.fullmatch(r"(G|S[0-4])-\d{2,3}|X[0-4]-\d{1,3}|P-\d{2,4}", name)]


def test_every_id_beyond_the_numbered_ones_says_what_it_asks_and_is_carried() -> None:
    carried = carried_ids(parse=tree_of)
    asked = document_ids() | document_ids(OUR_OWN)
    assert not [name for name, meaning in asked.items() if not meaning or name not in carried]


def test_every_carried_id_is_known() -> None:
    known = set(known_ids())
    assert not {name: places for name, places in carried_ids(parse=tree_of).items() if name not in known}


def test_marks_are_found_wherever_they_stand(tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "test_marks.py").write_text(
        "import pytest\n"
        "pytestmark = pytest.mark.req('G-01')\n"
        "@pytest.mark.req('S1-47', 'S1-48')\n"
        "def test_one(): ...\n"
        "@pytest.mark.req(NAME)\n"
        "def test_two(): ...\n"
    )
    assert carried_ids(tests) == {
        "G-01": ["tests/test_marks.py:2"],
        "S1-47": ["tests/test_marks.py:3"],
        "S1-48": ["tests/test_marks.py:3"],
        "NAME": ["tests/test_marks.py:5"],
    }


def test_report_ends_with_one_line_per_group() -> None:
    assert report(["G-01", "S1-01", "S1-02"], {"S1-02"}).splitlines() == ["G: G-01", "S1: S1-01", "G 0/1", "S1 1/2"]


def test_what_is_waived_in_part_is_known_and_said_where_ids_are_counted() -> None:
    waived = document_ids(WAIVED)
    assert set(waived) <= set(known_ids())
    assert all("decision" in why for why in waived.values())
    assert report(["S4-14"], {"S4-14"}, {"S4-14": "no partitions"}).splitlines() == [
        "S4-14 in part: no partitions",
        "S4 1/1",
    ]
