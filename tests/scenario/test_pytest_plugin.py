"""The pytest plugin as other people's tests use it: a pytest of its own, with no server anywhere."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from carillon.domain.errors import ConfigurationError
from carillon.testing import Outbox
from tests.support.ports import free_port
from tests.support.smtp import SmtpServer
from tests.support.vendor import Vendor

WELCOME: dict[str, Any] = {
    "channel": "email",
    "recipient": "ada@example.org",
    "data": {"name": "Ada", "link": "https://example.org/"},
}


@pytest.fixture
def outbox(tmp_path: Path) -> Outbox:
    return Outbox(tmp_path)


def test_what_was_sent(outbox: Outbox) -> None:
    with outbox:
        outbox.send("welcome", **WELCOME)
        (message,) = outbox.assert_sent("welcome", channel="email", recipient="ada@example.org", containing="Ada")
        assert message.message is not None
        outbox.assert_sent(channel="sms", times=0)
        with pytest.raises(pytest.fail.Exception, match=r"1 messages instead of 2.*\n.*ada@example.org"):
            outbox.assert_sent("welcome", times=2, patience_seconds=0.5)
        with pytest.raises(pytest.fail.Exception, match="nothing should have been sent"):
            outbox.assert_nothing_sent()


def test_failures_and_time(outbox: Outbox) -> None:
    with outbox:
        outbox.fail("email", "unavailable", times=2)
        accepted = outbox.send("welcome", **WELCOME)
        outbox.assert_nothing_sent()
        for _ in range(2):
            outbox.advance(700)
        # The second retry waits ten seconds where time only seems to pass.
        outbox.assert_sent("welcome", patience_seconds=5.0)
        assert [attempt.outcome for attempt in outbox.wait(accepted.notification_id).routes[0].attempts] == [
            "unavailable",
            "unavailable",
            "sent",
        ]


def test_time_is_what_the_retry_waited_for(outbox: Outbox) -> None:
    """The control of the test above: without time passing nothing is tried again."""
    with outbox:
        outbox.fail("email", "unavailable", times=1)
        accepted = outbox.send("welcome", **WELCOME)
        outbox.assert_nothing_sent()
        found = outbox.get(accepted.notification_id)
        assert found is not None
        assert (found.status, found.attempt_count) == ("queued", 1)


def test_a_dead_end_and_a_recovery(outbox: Outbox) -> None:
    with outbox:
        outbox.fail("*", "refused")
        lost = outbox.send("welcome", **WELCOME)
        assert outbox.wait(lost.notification_id).status == "failed"
        outbox.recover("*")
        outbox.send("welcome", **WELCOME)
        outbox.assert_sent("welcome")


IN_PRODUCTION = """extends = "local"
[http]
host = "0.0.0.0"
[channels]
email = ["smtp"]
sms = ["gateway", "sandbox"]
[providers.smtp]
url = "{smtp}"
sender = "shop@example.org"
[providers.gateway]
kind = "webhook"
url = "{vendor}"
secrets = ["whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0"]
[providers.webhook]
secrets = ["whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0"]
[rabbitmq_door]
queue = "intents"
[kafka]
bootstrap_servers = "127.0.0.1:{closed}"
[redis]
url = "redis://127.0.0.1:{closed}"
[history]
url = "http://127.0.0.1:{closed}/carillon"
[alerts]
sinks = ["webhook"]
webhook_url = "{vendor}"
webhook_secrets = ["whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0"]
[policy.retry."*/*"]
max_attempts = 1
"""


@pytest.mark.req("P-1180")
def test_the_settings_of_production_reach_nobody(tmp_path: Path) -> None:
    with SmtpServer(tls=False, credentials=None) as smtp, Vendor(tmp_path / "vendor.jsonl") as vendor:
        (tmp_path / "c.toml").write_text(
            IN_PRODUCTION.format(smtp=smtp.url, vendor=vendor.url, closed=free_port()), encoding="utf-8"
        )
        with Outbox(tmp_path, tmp_path / "c.toml") as outbox:
            sent = outbox.send("welcome", **WELCOME)
            outbox.assert_sent("welcome", channel="email", recipient="ada@example.org")
            assert outbox.wait(sent.notification_id).routes[0].provider == "smtp"
            outbox.fail("sms", "refused")
            lost = outbox.send("welcome", channel="sms", recipient="+491701234567", data=WELCOME["data"])
            assert outbox.wait(lost.notification_id).status == "failed"
            outbox.send("welcome", channel="inApp", user_id="ada", data=WELCOME["data"])
            outbox.assert_sent("welcome", channel="inApp", recipient="ada")
        assert (smtp.mails, vendor.entries) == ([], [])


def test_settings_that_cannot_work_leave_no_thread_behind(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("[work]\nconcurrency = 'none'\n", encoding="utf-8")
    before = set(threading.enumerate())
    with pytest.raises(ConfigurationError, match=r"work\.concurrency"), Outbox(tmp_path, tmp_path / "c.toml"):
        pass
    assert set(threading.enumerate()) <= before


OTHER_PEOPLES = """
import asyncio

def test_plain(carillon_outbox):
    carillon_outbox.send("welcome", channel="sms", recipient="+491701234567", data={"name": "Bo", "link": "https://x.org/"})
    carillon_outbox.assert_sent("welcome", channel="sms", recipient="+491701234567")

def test_from_a_running_loop(carillon_outbox):
    async def main():
        carillon_outbox.send("welcome", channel="push", recipient="token-1", data={"name": "Bo", "link": "https://x.org/"})
        carillon_outbox.assert_sent(channel="push")
    asyncio.run(main())

def test_alone(carillon_outbox):
    carillon_outbox.assert_nothing_sent()

def test_wrong(carillon_outbox):
    carillon_outbox.send("welcome", channel="sms", recipient="+491701234567", data={"name": "Bo", "link": "https://x.org/"})
    carillon_outbox.assert_nothing_sent()
"""


def test_the_fixture_in_a_project_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(OTHER_PEOPLES)
    (tmp_path / "carillon.toml").write_text('extends = "local"\n')
    (tmp_path / "pytest.ini").write_text("[pytest]\ncarillon_config = carillon.toml\n")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 3 passed" in run.stdout, run.stdout + run.stderr
    assert "sms to +491701234567" in run.stdout
