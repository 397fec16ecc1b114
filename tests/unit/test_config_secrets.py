"""What the log is told to hide is everything that is secret in the settings."""

from pathlib import Path

import pytest

from carillon.compose.from_settings import TRIAL_KEY
from carillon.config.reading import load, secrets
from tests.unit.test_config import SECRETS, from_file


@pytest.mark.parametrize("text", SECRETS.values(), ids=SECRETS.keys())
def test_every_secret_is_known_to_those_who_hide_them(tmp_path: Path, text: str) -> None:
    assert any("PLANTED" in secret for secret in secrets(from_file(tmp_path, text)))


def test_an_encoded_password_is_known_as_it_is_used() -> None:
    assert "p@ss/word" in secrets(load(environ={"DATABASE_URL": "postgresql://me:p%40ss%2Fword@db/x"}))


def test_without_secrets_there_is_nothing_to_hide() -> None:
    # The key of links is public in `local`, and hidden like any other all the same.
    assert secrets(load(environ={})) == {TRIAL_KEY}
