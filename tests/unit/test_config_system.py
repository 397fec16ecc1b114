"""The real clock, dice and ids, and the points at which a fault test may strike."""

import importlib
import time
from collections.abc import Iterator
from uuid import RFC_4122, UUID

import pytest

from carillon import faultpoint
from carillon.system import SystemClock, new_id, system_dice


def test_ids_are_uuids_of_version_7_and_of_now() -> None:
    before = time.time_ns() // 1_000_000
    made = [new_id() for _ in range(1000)]
    after = time.time_ns() // 1_000_000
    for text in made:
        uuid = UUID(text)
        assert str(uuid) == text
        assert (uuid.version, uuid.variant) == (7, RFC_4122)
        assert before <= uuid.int >> 80 <= after


def test_ids_are_unique_and_grow_with_time() -> None:
    made = [new_id() for _ in range(20_000)]
    assert len(set(made)) == len(made)
    assert made == sorted(made)


def test_ids_use_all_of_their_random_bits() -> None:
    together, ever = (1 << 128) - 1, 0
    for _ in range(2000):
        value = UUID(new_id()).int
        together &= value
        ever |= value
    random_bits = ((1 << 12) - 1) << 64 | (1 << 62) - 1
    assert ever & random_bits == random_bits
    assert together & random_bits == 0


def test_dice_stay_in_their_range() -> None:
    thrown = [system_dice() for _ in range(10_000)]
    assert 0.0 <= min(thrown) < 0.1
    assert 0.9 < max(thrown) < 1.0


def test_the_clock_never_goes_back_and_knows_the_date() -> None:
    clock = SystemClock()
    assert clock.monotonic() <= clock.monotonic()
    assert clock.wall() == pytest.approx(time.time(), abs=5.0)


async def test_a_scaled_clock_shortens_its_waits() -> None:
    await SystemClock(scale=0.0).sleep(3600.0)


@pytest.fixture
def armed(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    monkeypatch.setenv(faultpoint.VARIABLE, request.param)
    importlib.reload(faultpoint)
    yield
    monkeypatch.undo()
    importlib.reload(faultpoint)


@pytest.mark.parametrize("armed", ["here=raise@2, there=raise"], indirect=True)
@pytest.mark.usefixtures("armed")
def test_an_armed_point_strikes_at_its_hit_and_only_there() -> None:
    faultpoint.faultpoint("here")
    with pytest.raises(faultpoint.InjectedFault, match="here"):
        faultpoint.faultpoint("here")
    faultpoint.faultpoint("here")
    faultpoint.faultpoint("elsewhere")
    with pytest.raises(faultpoint.InjectedFault, match="there"):
        faultpoint.faultpoint("there")


@pytest.mark.parametrize("armed", ["", "here", "=raise", ",,"], indirect=True)
@pytest.mark.usefixtures("armed")
def test_nothing_strikes_unarmed() -> None:
    faultpoint.faultpoint("here")
