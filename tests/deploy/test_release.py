"""The changelog by version, and what keeps a checkout from being released."""

import subprocess
from datetime import date
from pathlib import Path

import pytest

from carillon import __version__
from scripts.release import PLACES, cut, name_everywhere, obstacles, sections, wrong
from tests.support.sources import ROOT

DAY = date(2030, 1, 31)
CHANGELOG = """# Changelog

## [Unreleased]

### Added

- Bells.

## [0.2.0] - 2029-12-24

### Fixed

- Ropes.

## [0.1.0] - 2029-11-01

### Added

- Everything.
"""


@pytest.mark.req("P-551")
def test_the_changelog_is_in_order() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert list(wrong(text)) == []
    released = [name for name in sections(text) if name != "Unreleased"]
    assert not released or released[0] == __version__, "the newest version is this one"


@pytest.mark.req("P-551")
def test_no_file_that_names_the_version_is_forgotten() -> None:
    """A version that is cut is found in no file any more, but where it is history or an example."""
    history = ("CHANGELOG.md", "docs/decisions/", "tests/", "requirements")
    command = ["git", "grep", "--files-with-matches", "--word-regexp", "--fixed-strings", __version__]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.splitlines()
    if not found:
        pytest.skip("this is no git checkout")
    assert {name for name in found if not name.startswith(history)} == set(PLACES)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("## [Unreleased]", "## [0.3.0] - 2030-01-01", "first section"),
        ("## [0.2.0] - 2029-12-24", "## [0.2.0]", "no day"),
        ("## [0.2.0] - 2029-12-24", "## [0.2.0] - soon", "no day"),
        ("## [0.2.0]", "## [0.2]", "no version"),
        ("## [0.2.0]", "## [0.0.9]", "newest"),
        ("### Fixed", "### Mended", "Mended"),
        ("- Everything.\n", "- Everything.\n\n### Added\n", "at most once"),
    ],
)
def test_a_changelog_out_of_order_is_noticed(old: str, new: str, said: str) -> None:
    assert list(wrong(CHANGELOG)) == []
    found = "\n".join(wrong(CHANGELOG.replace(old, new, 1)))
    assert said in found


@pytest.mark.req("P-551")
def test_what_is_unreleased_becomes_a_version_and_nothing_is_lost() -> None:
    after = cut(CHANGELOG, "0.3.0", DAY)
    assert list(wrong(after)) == []
    found = sections(after)
    assert list(found) == ["Unreleased", "0.3.0", "0.2.0", "0.1.0"]
    assert found["Unreleased"] == (None, "")
    assert found["0.3.0"] == ("2030-01-31", sections(CHANGELOG)["Unreleased"][1])
    with pytest.raises(ValueError, match="nothing is unreleased"):
        cut(after, "0.4.0", DAY)
    for version, why in (("0.2.0", "already"), ("0.1.5", "older"), ("1.0", "three numbers"), ("v1.0.0", "three")):
        with pytest.raises(ValueError, match=why):
            cut(CHANGELOG, version, DAY)


@pytest.mark.req("P-551")
def test_obstacles_are_named_and_then_gone(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        identity = ("-c", "user.name=bells", "-c", "user.email=bells@example.org")
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)

    for name in PLACES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    assert "no git checkout" in "\n".join(obstacles(tmp_path, "0.3.0"))
    git("init", "--quiet")
    before = "\n".join(obstacles(tmp_path, "0.3.0"))
    assert "no section for 0.3.0" in before
    assert "not committed" in before
    for name in PLACES:
        assert f"{name} names {__version__} and not 0.3.0" in before
    (tmp_path / "CHANGELOG.md").write_text(cut(CHANGELOG, "0.3.0", DAY))
    assert name_everywhere(tmp_path, "0.3.0") == list(PLACES)
    assert name_everywhere(tmp_path, "0.3.0") == []
    git("add", ".")
    git("commit", "--quiet", "--message", "0.3.0")
    assert list(obstacles(tmp_path, "0.3.0")) == []
    git("tag", "v0.3.0")
    assert list(obstacles(tmp_path, "0.3.0")) == ["v0.3.0 is a tag already"]
