"""What is said about the lock files: every pin has its hashes, and the bill of materials has every pin."""

from typing import Any

import pytest

from scripts.supply_chain import LOCKS, Pin, advisories, ages, direct, normal, read_lock, sbom, unaudited, wrong, yanked

DIGEST = "a" * 64
LOCKED = {name: read_lock(path.read_text()) for name, path in LOCKS.items()}


def test_every_pin_of_ours_is_sound() -> None:
    assert list(wrong(LOCKED)) == []
    assert all(pin.digests for pins in LOCKED.values() for pin in pins)
    assert direct() - {"redis"} <= {normal(pin.name) for pin in LOCKED["carillon-dev"]}


@pytest.mark.parametrize("name", LOCKED)
def test_the_bill_has_every_pin_once_and_is_the_same_each_time(name: str) -> None:
    made = sbom(name, LOCKED[name], "1.2.3")
    refs = [component["bom-ref"] for component in made["components"]]
    assert len(refs) == len(set(refs)) == len(LOCKED[name])
    assert {(c["name"], c["version"]) for c in made["components"]} == {(p.name, p.version) for p in LOCKED[name]}
    assert made == sbom(name, LOCKED[name], "1.2.3")
    ours, *others = made["dependencies"]
    assert ours["dependsOn"]
    assert {ref for each in made["dependencies"] for ref in each["dependsOn"]} <= set(refs)
    assert [each["ref"] for each in others] == refs
    assert made["serialNumber"] != sbom(name, LOCKED[name][1:], "1.2.3")["serialNumber"]


@pytest.mark.parametrize(
    "line", ["h11>=0.16", "-e .", "h11 @ https://example.org/h11.whl", "--index-url https://example.org", "h11"]
)
def test_a_line_without_a_version_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="line 1 is neither"):
        read_lock(line)


def test_what_is_wrong_is_seen() -> None:
    good, bare = Pin("a", "1", "", (DIGEST,)), Pin("b", "1", "", ())
    assert list(wrong({"carillon": [good]})) == []
    assert list(wrong({"carillon": [good, bare]})) == ["carillon: b==1 has no hash"]
    assert list(wrong({"carillon": [good, good]})) == ["carillon: a is pinned twice"]
    other = {"carillon": [good], "carillon-dev": [good._replace(version="2")]}
    assert list(wrong(other)) == ["a is 1 where Carillon runs and 2 where it is tested"]


def test_yanked_pins_are_named() -> None:
    assert yanked("warning: `attrs==21.1.0` is yanked (reason: broken)\nwarning: other") == ["attrs==21.1.0"]
    assert yanked("Resolved 3 packages") == []


def test_a_package_without_advisory_data_does_not_count_as_checked() -> None:
    report: dict[str, Any] = {
        "dependencies": [
            {"name": "a", "version": "1", "vulns": [{"id": "PYSEC-1"}]},
            {"name": "b", "version": "1", "vulns": []},
            {"name": "c", "skip_reason": "not found"},
        ]
    }
    assert unaudited(report) == (["a 1: PYSEC-1"], ["c"])
    assert advisories(report) == (
        "advisories: 1 of 2 packages have known vulnerabilities; 1 packages are NOT CHECKED, "
        "there is no advisory data here"
    )
    nothing: dict[str, Any] = {"dependencies": report["dependencies"][2:]}
    assert "known" not in advisories(nothing)
    everything: dict[str, Any] = {"dependencies": report["dependencies"][:2]}
    assert advisories(everything) == "advisories: 1 of 2 packages have known vulnerabilities"


def test_ages_that_the_registry_does_not_tell_are_not_called_fine() -> None:
    assert ages([]) == "0 younger than 3 days"
    assert ages(["a of yesterday"]) == "1 younger than 3 days: a of yesterday"
    assert "NOT CHECKED" in ages([], "the index has no upload times")
