"""How long suppressions hold, and whether bounces are shared, are settings; each process here has its own."""

import pytest

from tests.scenario.test_listo_suppressions_tenants import ACME, GLOBEX, OPERATOR, bounce_twice, listed, refused_for
from tests.support import listo_callbacks as vendors
from tests.support.listo_stand import SECRET, Listo, stand_fixture
from tests.support.waiting import wait_until

listo = stand_fixture(start=False, JWT_SECRET_KEY=SECRET)


def test_shared_bounces_hold_for_every_tenant(listo: Listo) -> None:
    listo.start(CARILLON_SUPPRESSIONS__SHARE_BOUNCES="true")
    address = vendors.email()
    bounce_twice(listo, address)
    wait_until(lambda: bool(listed(listo, OPERATOR, address=address)), timeout=20, what="the suppression")
    assert [each["tenantId"] for each in listed(listo, OPERATOR, address=address)] == [None]
    for headers in (ACME, GLOBEX):
        assert listo.send(recipient=address, headers=headers).body["skipped"][0]["kind"] == "bounced"
    number = vendors.phone()
    refused_for(listo, ACME, number)
    assert listo.send("order_confirmed", "sms", recipient=number, headers=GLOBEX).body["status"] == "queued"


def test_a_suppression_that_is_over_stops_nothing(listo: Listo) -> None:
    listo.start(CARILLON_SUPPRESSIONS__INVALID_SECONDS="2")
    number = vendors.phone()
    refused_for(listo, ACME, number)
    answers = []

    def is_sent_again() -> bool:
        answers.append(listo.send("order_confirmed", "sms", recipient=number, headers=ACME).body)
        return bool(answers[-1]["status"] == "queued")

    wait_until(is_sent_again, timeout=40, what="the end of the suppression")
    assert listed(listo, ACME, address=number) == []
    listo.until(answers[-1]["notificationId"], "delivered", headers=ACME)


@pytest.mark.parametrize("value", ["-1", "1e12", "soon"])
def test_a_length_that_makes_no_sense_is_refused(listo: Listo, value: str) -> None:
    program = listo.launch(CARILLON_SUPPRESSIONS__BOUNCED_SECONDS=value)
    assert program.wait(40) != 0
    assert "suppressions.bounced_seconds" in program.tail(20)
