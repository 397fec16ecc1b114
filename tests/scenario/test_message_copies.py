"""Copies of an email and files in one call, at vendors that report back: whom a report is about, and who may copy."""

from typing import Any

import pytest

from tests.support import listo_callbacks as vendors
from tests.support.client import Reply
from tests.support.listo_callbacks import event
from tests.support.listo_stand import SECRET, Listo, shared_fixture, token
from tests.support.mail_parts import PDF, file

listo = shared_fixture(JWT_SECRET_KEY=SECRET)

ADMIN = token("root", role="admin")
SERVICE = token("shop", role="service", tenant="acme")
PERSON = token("user-1", tenant="acme")


def suppressed(listo: Listo, address: str) -> list[str]:
    found = listo.client.get(f"/api/v1/suppressions?address={address}", ADMIN).body
    return [item["kind"] for item in found["items"]]


def mailed(listo: Listo, **fields: Any) -> tuple[str, str]:
    one = listo.sent("order_confirmed", "email", **{"recipient": vendors.email(), "headers": ADMIN, **fields})
    return one, listo.until(one, "delivered", headers=ADMIN)["providerMessageIds"][-1]


def send(listo: Listo, caller: dict[str, str], **fields: Any) -> Reply:
    body = {"templateKey": "order_confirmed", "channel": "email", "recipient": vendors.email(), **fields}
    return listo.client.call("POST", "/api/v1/notifications/send", body, caller)


@pytest.mark.req("P-116")
def test_a_report_about_a_copy_is_about_that_address_alone(listo: Listo) -> None:
    copy, ada = vendors.email(), vendors.email()
    for _ in range(2):
        one, message = mailed(listo, recipient=ada, cc=[copy])
        mails = len(listo.acs.mails)
        bounce = event("bounce", message, type="bounce", email=copy.upper())
        assert vendors.sendgrid(listo, bounce, event("delivered", message, email=ada)).status == 200
        vendors.until_route(listo, one, status="published")
        # The recipient has the mail: nobody takes over because a copy bounced.
        assert len(listo.acs.mails) == mails
        assert listo.story(one, ADMIN)["status"] == "delivered"
    assert suppressed(listo, ada) == []
    assert suppressed(listo, copy) == ["bounced"]
    one, _ = mailed(listo, recipient=ada, cc=[copy.title()])
    assert listo.story(one, ADMIN)["routes"][0]["message"]["mail"]["leftOut"] == [copy.title()]


@pytest.mark.req("P-116")
def test_a_complaint_about_a_copy_does_not_bury_the_mail(listo: Listo) -> None:
    copy, ada = vendors.email(), vendors.email()
    one, message = mailed(listo, recipient=ada, cc=[copy])
    assert vendors.sendgrid(listo, event("spamreport", message, email=copy)).status == 200
    assert suppressed(listo, copy) == ["complained"]
    assert (suppressed(listo, ada), listo.story(one, ADMIN)["status"]) == ([], "delivered")
    # The control: the recipient's own complaint still ends the route.
    vendors.sendgrid(listo, event("spamreport", message, email=ada.upper()))
    assert listo.until(one, "failed", headers=ADMIN)["recipient"] == ada


@pytest.mark.req("P-221")
def test_an_address_that_was_erased_while_suppressed_gets_no_copy(listo: Listo) -> None:
    copy, ada = vendors.email(), vendors.email()
    held = {"channel": "email", "address": copy, "reason": "asked"}
    assert listo.client.call("POST", "/api/v1/suppressions", held, ADMIN).status == 200
    erased = listo.client.call("DELETE", f"/api/v1/people/email:{copy}", None, ADMIN).body
    assert erased["suppressionsKept"] == 1
    # A new process has read no marks yet: the running one looks at them every few seconds, and must not claim it.
    listo.programs[-1].terminate()
    assert listo.programs[-1].wait() == 0
    listo.start()
    one, _ = mailed(listo, recipient=ada, cc=[copy, copy.replace("@", "-other@")])
    assert listo.story(one, ADMIN)["routes"][0]["message"]["mail"]["leftOut"] == [copy]


@pytest.mark.req("P-1112")
def test_explain_names_the_copies_of_erased_addresses_too(listo: Listo) -> None:
    copies = [vendors.email(), vendors.email(), vendors.email()]
    for copy in copies[:2]:
        held = {"channel": "email", "address": copy, "reason": "asked"}
        assert listo.client.call("POST", "/api/v1/suppressions", held, ADMIN).status == 200
    assert listo.client.call("DELETE", f"/api/v1/people/email:{copies[0]}", None, ADMIN).body["suppressionsKept"] == 1
    body = {"templateKey": "order_confirmed", "channel": "email", "recipient": vendors.email(), "cc": copies}
    said = listo.client.call("POST", "/api/v1/notifications/explain", body, ADMIN).body
    (step,) = [step for step in said["steps"] if step["step"] == "suppression"]
    assert step["detail"]["leftOut"] == sorted(copies[:2])


@pytest.mark.req("P-117")
def test_a_person_adds_no_copies_and_a_service_does(listo: Listo) -> None:
    copy = vendors.email()
    for field in ("cc", "bcc"):
        refused = send(listo, PERSON, **{field: [copy]})
        assert (refused.status, refused.body["error"]["code"]) == (403, "FORBIDDEN")
        assert send(listo, SERVICE, **{field: [copy]}).status == 202
    assert send(listo, PERSON, attachments=[file()]).status == 202


@pytest.mark.req("P-111", "P-114")
def test_a_synchronous_mail_carries_its_files_or_says_why_not(listo: Listo) -> None:
    ada = vendors.email()
    done = send(listo, ADMIN, recipient=ada, synchronous=True, attachments=[file()])
    assert done.status == 200, done
    (call,) = listo.calls("SendGrid", ada)
    assert file(content=PDF)["content"] in call["body"]
    # This machine is not among what the egress rules allow.
    inside = {"filename": "x.pdf", "contentType": "application/pdf", "url": "https://127.0.0.1/x.pdf"}
    bob = vendors.email()
    failed = send(listo, ADMIN, recipient=bob, synchronous=True, attachments=[inside])
    assert (failed.status, failed.body["error"]["code"]) == (502, "DELIVERY_FAILED")
    assert "x.pdf: this address may not be called" in failed.body["error"]["message"]
    assert listo.calls("SendGrid", bob) == []
