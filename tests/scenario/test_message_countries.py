"""A country that is no longer allowed: what was accepted before is not sent."""

import pytest

from tests.support.listo_stand import PHONE, Listo, stand_fixture

listo = stand_fixture(start=False)


@pytest.mark.req("P-103")
def test_what_was_accepted_under_another_rule_is_a_dead_letter(listo: Listo) -> None:
    listo.start("--roles", "doors,upkeep")
    one = listo.sent("order_confirmed", "sms", recipient=PHONE)
    listo.programs[-1].close()
    listo.start(CARILLON_SMS__COUNTRIES="DE,AT")
    (route,) = listo.until(one, "failed")["routes"]
    assert route["lastError"].startswith("US is not among the countries")
    assert listo.calls("Twilio") == []
