"""The sse blueprint's names for the engine's settings: one with them, whichever a file or a variable uses."""

from pathlib import Path

import pytest

from carillon.config.reading import load
from carillon.config.sections import TaskPicker
from carillon.config.settings import Settings
from carillon.domain.errors import ConfigurationError


def configured(tmp_path: Path, text: str = "", **environ: str) -> Settings:
    file = tmp_path / "sse.toml"
    file.write_text(f'extends = "sse"\n{text}')
    return load(config=file, environ=environ)


def picker(settings: Settings) -> TaskPicker:
    assert settings.task_picker is not None
    return settings.task_picker


@pytest.mark.req("S4-57", "S4-17", "S4-18", "S4-23", "S4-37")
def test_the_document_s_numbers_hold_without_a_word(tmp_path: Path) -> None:
    settings = configured(tmp_path)
    assert picker(settings) == TaskPicker(
        instance_id="auto",
        poll_interval=1.0,
        batch_size=100,
        lease_duration=30.0,
        max_retries=3,
        lease_cleanup_interval=10.0,
        offline_policy="hold",
        delivery_failure="retry",
    )
    assert (settings.work.poll_seconds, settings.work.batch, settings.ledger.lease_seconds) == (1.0, 100, 30.0)
    assert settings.policy.retry["*/sse"].max_attempts == 3
    assert settings.work.strict_lanes


@pytest.mark.req("S4-57", "S4-60")
def test_each_name_reaches_the_engine(tmp_path: Path) -> None:
    text = (
        '[task_picker]\npoll_interval = "250ms"\nbatch_size = 1000\nlease_duration = "10s"\nmax_retries = 5\n'
        'offline_policy = "fail"\nlease_cleanup_interval = "1m"\ninstance_id = "one"'
    )
    settings = configured(tmp_path, text)
    work = settings.work
    assert (work.poll_seconds, work.batch, work.concurrency, work.first_claims) == (0.25, 1000, 1000, 1000)
    assert (settings.ledger.lease_seconds, settings.policy.retry["*/sse"].max_attempts) == (10.0, 5)
    assert settings.providers["sse"]["offline"] == "fail"
    assert picker(settings).lease_cleanup_interval == 60.0


@pytest.mark.req("S4-57")
def test_the_environment_goes_before_the_file_under_either_name(tmp_path: Path) -> None:
    text = '[task_picker]\nlease_duration = "10s"\npoll_interval = "5s"'
    settings = configured(tmp_path, text, CARILLON_TASK_PICKER__LEASE_DURATION="12s", CARILLON_WORK__POLL_SECONDS="0.5")
    assert (settings.ledger.lease_seconds, picker(settings).lease_duration) == (12.0, 12.0)
    assert (settings.work.poll_seconds, picker(settings).poll_interval) == (0.5, 0.5)


def test_the_engine_s_own_name_goes_before_the_blueprint(tmp_path: Path) -> None:
    settings = configured(tmp_path, "[ledger]\nlease_seconds = 7")
    assert picker(settings).lease_duration == 7.0


@pytest.mark.req("S4-27")
def test_a_terminal_failure_is_one_try(tmp_path: Path) -> None:
    settings = configured(tmp_path, '[task_picker]\ndelivery_failure = "terminal"')
    assert settings.policy.retry["*/sse"].max_attempts == 1
    assert picker(settings).max_retries == 3, "what is written stays visible"


@pytest.mark.req("S4-62")
def test_ageing_shares_claims_between_priorities(tmp_path: Path) -> None:
    settings = configured(tmp_path, "[task_picker]\nageing = true")
    assert not settings.work.strict_lanes
    assert [lane.weight for lane in settings.lanes.values()] == [6, 3, 1]


@pytest.mark.req("S4-59")
def test_priorities_may_have_paces_of_their_own(tmp_path: Path) -> None:
    settings = configured(tmp_path, '[task_picker.poll_intervals]\nHIGH = "200ms"\nLOW = "5s"')
    paces = {lane.queue_name: lane.poll_seconds for lane in settings.lanes.values()}
    assert paces == {"HIGH": 0.2, "MEDIUM": None, "LOW": 5.0}
    assert settings.work.poll_seconds == 0.2, "the worker polls as often as the fastest priority"


@pytest.mark.req("S4-59", "P-831")
def test_a_variable_gives_a_priority_its_pace(tmp_path: Path) -> None:
    text = '[task_picker.poll_intervals]\nHIGH = "200ms"\nLOW = "5s"'
    settings = configured(tmp_path, text, CARILLON_TASK_PICKER__POLL_INTERVALS__LOW="7s")
    assert picker(settings).poll_intervals == {"HIGH": 0.2, "LOW": 7.0}
    assert [lane.poll_seconds for lane in settings.lanes.values()] == [0.2, None, 7.0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[task_picker]\nbatch_size = 0", "task_picker.batch_size"),
        ('[task_picker]\nlease_duration = "0s"', "task_picker.lease_duration"),
        ("[task_picker]\nmax_retries = 0", r'policy.retry."\*/sse"'),
        ('[task_picker]\nlease_cleanup_interval = "0s"', "task_picker.lease_cleanup_interval"),
        ('[task_picker]\npoll_intervals = { URGENT = "1s" }', "task_picker.poll_intervals"),
        ('[task_picker]\npoll_intervals = { LOW = "0s" }', "task_picker.poll_intervals.LOW"),
        ("[task_picker]\nbatchsize = 5", "task_picker.batchsize"),
        ('[task_picker]\noffline_policy = "wait"', "task_picker.offline_policy"),
    ],
)
def test_what_cannot_work_is_refused_by_its_own_name(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        configured(tmp_path, text)


@pytest.mark.req("P-1347")
def test_the_provider_of_live_streams_has_the_name_by_which_the_ledger_finds_it(tmp_path: Path) -> None:
    renamed = '[channels]\nsse = ["live"]\n[providers.live]\nkind = "sse"\n'
    with pytest.raises(ConfigurationError, match=r"^providers\.live: .*: call it sse$"):
        configured(tmp_path, renamed)
    # Somebody else's picker may serve the channel.
    assert configured(tmp_path, renamed.replace('"sse"\n', '"sandbox"\n')).channels["sse"] == ["live"]
