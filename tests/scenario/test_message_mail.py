"""What an email carries, from outside: the same at every repeat and provider, and seen where operators look."""

import base64
import itertools
import json
from typing import Any

import pytest

from tests.support.mail_parts import BCC, CC, PDF, PNG, everything, file
from tests.support.mail_stand import ADA, MailStand, stand_fixture
from tests.support.vendor import Reply

stand = stand_fixture()

_numbers = itertools.count(1)
EVENT = {
    "title": "Tasting; at our table",
    "start": "2030-01-01T19:00:00+01:00",
    "end": "2030-01-01T20:00:00+01:00",
    "organizer": "host@example.org",
    "method": "REQUEST",
}


@pytest.fixture
def ada() -> str:
    """An address of the test's own, by which it finds its mails."""
    return f"ada{next(_numbers)}@example.com"


def by_smtp(stand: MailStand, address: str) -> list[Any]:
    return [mail for mail in stand.smtp.mails if address in mail.recipients]


def by_vendor(stand: MailStand, provider: str, address: str) -> list[str]:
    """The bodies of the requests about an address."""
    stub = {"sendgrid": stand.sendgrid, "acs": stand.acs}[provider]
    return [entry["body"] for entry in list(stub.entries) if address in entry["body"]]


@pytest.mark.req("P-111")
def test_everything_arrives_over_smtp(stand: MailStand, ada: str) -> None:
    stand.until(stand.sent(recipient=ada, calendar=EVENT, **everything()), "delivered")
    (mail,) = by_smtp(stand, ada)
    assert mail.recipients == (ada, CC, BCC)
    letter = mail.parsed()
    assert (letter["To"], letter["Cc"], letter["Reply-To"]) == (ada, CC, "help@example.org")
    assert letter["X-Order"] == "4711"
    # A blind copy stands in the envelope alone.
    assert BCC.encode() not in mail.content
    assert "Bcc" not in letter
    (invoice, invitation) = letter.iter_attachments()
    assert (invoice.get_filename(), invoice.get_content_type(), invoice.get_content()) == (
        "invoice.pdf",
        "application/pdf",
        PDF,
    )
    assert invitation.get_content_type() == "text/calendar"
    assert invitation.get_param("method") == "REQUEST"
    assert "SUMMARY:Tasting\\; at our table" in invitation.get_content()
    (image,) = [part for part in letter.walk() if part["Content-ID"] == "<logo.png>"]
    assert (image.get_content(), image.get_content_disposition()) == (PNG, "inline")


@pytest.mark.req("P-112")
def test_a_repeat_and_the_next_provider_get_the_same_mail(stand: MailStand, ada: str) -> None:
    """SMTP and SendGrid fail twice, ACS once: five attempts, over seconds, before the mail is taken."""
    down = Reply(503, body={"errors": [{"message": "down"}]})
    stand.smtp.answer_data("451 4.3.0 later", "451 4.3.0 later")
    stand.sendgrid.answer(down, down, path="/v3/mail/send")
    stand.acs.answer(down, path="/emails:send")
    story = stand.until(stand.sent(recipient=ada, calendar=EVENT, **everything()), "delivered")
    tried = [attempt["provider"] for attempt in story["routes"][0]["attempts"]]
    assert tried == ["smtp", "smtp", "sendgrid", "sendgrid", "acs", "acs"]
    letters = [mail for mail in stand.smtp.refused if ada in mail.recipients]
    assert len(letters) == 2
    assert letters[0] == letters[1]
    grid, azure = by_vendor(stand, "sendgrid", ada), by_vendor(stand, "acs", ada)
    assert (len(grid), len(set(grid)), len(azure), len(set(azure))) == (2, 1, 2, 1)
    ours, theirs = json.loads(grid[0]), json.loads(azure[0])
    assert ours["personalizations"] == [{"to": [{"email": ada}], "cc": [{"email": CC}], "bcc": [{"email": BCC}]}]
    assert theirs["recipients"] == {"to": [{"address": ada}], "cc": [{"address": CC}], "bcc": [{"address": BCC}]}
    assert (ours["reply_to"], theirs["replyTo"]) == ({"email": "help@example.org"}, [{"address": "help@example.org"}])
    assert ours["headers"]["X-Order"] == theirs["headers"]["X-Order"] == "4711"
    contents = [one["content"] for one in ours["attachments"]]
    assert contents == [one["contentInBase64"] for one in theirs["attachments"]]
    assert [base64.b64decode(one) for one in contents[:2]] == [PDF, PNG]
    assert [one["filename"] for one in ours["attachments"]] == ["invoice.pdf", "logo.png", "invite.ics"]
    assert (ours["attachments"][1]["content_id"], theirs["attachments"][1]["contentId"]) == ("logo.png", "logo.png")
    assert "method=REQUEST" in ours["attachments"][2]["type"]
    letter = letters[0].parsed()
    written = {part.get_filename(): part.get_payload(decode=True) for part in letter.walk() if part.get_filename()}
    assert written == {one["filename"]: base64.b64decode(one["content"]) for one in ours["attachments"]}


@pytest.mark.req("P-113")
def test_a_file_behind_a_url_is_fetched_once_and_kept(stand: MailStand, ada: str) -> None:
    """The URL says something else at every fetch: only the first one counts."""
    parts = [Reply(headers={"Content-Type": "application/pdf"}, body=PDF + bytes([n])) for n in range(3)]
    stand.files.answer(*parts, path="/changing.pdf")
    stand.smtp.answer_recipient(ada, "451 4.3.0 later", "451 4.3.0 later")
    link = f"{stand.files.url}/changing.pdf?signature=secret"
    attachment = {"filename": "changing.pdf", "contentType": "application/pdf", "url": link}
    story = stand.until(stand.sent(recipient=ada, attachments=[attachment]), "delivered")
    fetched = [entry for entry in list(stand.files.entries) if "changing" in entry["path"]]
    assert len(fetched) == 1
    (body,) = by_vendor(stand, "sendgrid", ada)
    assert base64.b64decode(json.loads(body)["attachments"][0]["content"]) == PDF + b"\0"
    (seen,) = story["routes"][0]["message"]["mail"]["attachments"]
    # Its query may be a credential.
    assert seen == {
        "filename": "changing.pdf",
        "contentType": "application/pdf",
        "inline": False,
        "bytes": len(PDF) + 1,
        "url": f"{stand.files.url}/changing.pdf",
    }


@pytest.mark.req("P-114")
@pytest.mark.parametrize(
    ("reply", "classification"),
    [
        (Reply(404), "attachment_refused"),
        (Reply(302, {"Location": "http://127.0.0.1/"}), "attachment_refused"),
        (Reply(headers={"Content-Type": "text/html"}, body="<p>Sign in</p>"), "attachment_type"),
        (Reply(headers={"Content-Type": "application/pdf"}, body=b"x" * 1_000_001), "attachment_too_large"),
    ],
    ids=["gone", "redirect", "another type", "too large"],
)
def test_a_file_that_will_never_come_is_a_dead_letter_with_its_reason(
    stand: MailStand, ada: str, reply: Reply, classification: str
) -> None:
    path = f"/never-{ada}.pdf"
    stand.files.answer(reply, path=path)
    attachment = {"filename": "never.pdf", "contentType": "application/pdf", "url": stand.files.url + path}
    story = stand.until(stand.sent(recipient=ada, attachments=[attachment]), "failed")
    (route,) = story["routes"]
    assert [attempt["classification"] for attempt in route["attempts"]] == [classification]
    assert route["lastError"].startswith("attachment never.pdf: ")
    assert by_smtp(stand, ada) == []


@pytest.mark.req("P-114")
def test_a_file_that_is_late_is_fetched_again_and_no_provider_is_blamed(stand: MailStand, ada: str) -> None:
    path = f"/late-{ada}.pdf"
    good = Reply(headers={"Content-Type": "application/octet-stream"}, body=PDF)
    stand.files.answer(Reply(503), Reply(429), good, path=path)
    attachment = {"filename": "late.pdf", "contentType": "application/pdf", "url": stand.files.url + path}
    story = stand.until(stand.sent(recipient=ada, attachments=[attachment]), "delivered")
    outcomes = [(one["provider"], one["outcome"], one["classification"]) for one in story["routes"][0]["attempts"]]
    late = ("smtp", "unavailable", "attachment_unavailable")
    assert outcomes == [late, late, ("smtp", "sent", None)]
    assert len(by_smtp(stand, ada)) == 1


@pytest.mark.req("P-115")
def test_a_suppressed_copy_is_not_written_to(stand: MailStand, ada: str) -> None:
    gone = f"gone-{ada}"
    added = stand.client.call("POST", "/api/v1/suppressions", {"channel": "email", "address": gone, "reason": "asked"})
    assert added.status in {200, 201}, added
    copies: dict[str, Any] = {"cc": [gone, f"cc-{ada}"], "bcc": [f"bcc-{ada}"]}
    body = {"templateKey": "order", "channel": "email", "recipient": ada, "data": {"number": "7"}, **copies}
    explained = stand.client.call("POST", "/api/v1/notifications/explain", body).body
    (step,) = [one for one in explained["steps"] if one["step"] == "suppression"]
    assert (step["verdict"], step["detail"]["leftOut"]) == ("note", [gone])
    story = stand.until(stand.sent(recipient=ada, **copies), "delivered")
    (mail,) = by_smtp(stand, ada)
    assert mail.recipients == (ada, f"cc-{ada}", f"bcc-{ada}")
    assert gone.encode() not in mail.content
    assert story["routes"][0]["message"]["mail"]["leftOut"] == [gone]


@pytest.mark.req("P-116")
def test_a_copy_that_is_refused_does_not_keep_the_mail_from_its_recipient(stand: MailStand, ada: str) -> None:
    stand.smtp.answer_recipient(f"cc-{ada}", "550 5.1.1 no such user")
    story = stand.until(stand.sent(recipient=ada, cc=[f"cc-{ada}"], bcc=[f"bcc-{ada}"]), "delivered")
    (mail,) = by_smtp(stand, ada)
    assert mail.recipients == (ada, f"bcc-{ada}")
    assert "1 of 2 copies refused" in story["providerMessageIds"][0]


def test_two_mails_side_by_side_keep_their_own_files(stand: MailStand, ada: str) -> None:
    other = f"other-{ada}"
    first = stand.sent(recipient=ada, attachments=[file("a.pdf", b"for ada")])
    second = stand.sent(recipient=other, attachments=[file("b.pdf", b"for another")])
    for one in (first, second):
        stand.until(one, "delivered")
    for address, content in ((ada, b"for ada"), (other, b"for another")):
        (mail,) = by_smtp(stand, address)
        assert [part.get_content() for part in mail.parsed().iter_attachments()] == [content]


@pytest.mark.req("P-117", "P-747")
@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"attachments": [{"filename": "x.pdf", "contentType": "application/pdf"}]}, "attachments[0]"),
        ({"attachments": [file(url="https://example.org/x")]}, "attachments[0]"),
        ({"attachments": [{**file(), "content": "no base64!"}]}, "attachments[0].content"),
        ({"attachments": [{**file(), "url": "ftp://x.example/y", "content": None}]}, "attachments[0].url"),
        ({"attachments": [file("a b.png", PNG, "image/png", inline=True)]}, "attachments[0].filename"),
        ({"attachments": [file("../etc", PNG)]}, "attachments[0].filename"),
        ({"attachments": [file("x\r\nBcc: a@b.example", PNG)]}, "attachments[0].filename"),
        ({"attachments": [file(kind="text/html\r\nBcc: a@b.example")]}, "attachments[0].contentType"),
        ({"cc": ["nobody"]}, "cc[0]"),
        ({"cc": [ADA]}, "cc[0]"),
        ({"bcc": [f"a{number}@example.org" for number in range(21)]}, "bcc"),
        ({"cc": ["a@example.org"], "bcc": ["A@example.org"]}, "bcc[0]"),
        ({"replyTo": "a@example.org\r\nBcc: b@example.org"}, "replyTo"),
        ({"headers": {"Bcc": "a@example.org"}}, "headers"),
        ({"headers": {"X-A\r\nBcc": "a@example.org"}}, "headers"),
        ({"headers": {"X-A": "1\r\nBcc: a@example.org"}}, "headers.X-A"),
        ({"headers": {"X-A": "=?utf-8?q?=0D=0ABcc:_a@b.example?="}}, "headers.X-A"),
        ({"headers": {"X-Carillon-Notification": "other"}}, "headers"),
        ({"headers": {"List-Unsubscribe": "<https://example.org>"}}, "headers"),
        ({"calendar": {**EVENT, "end": EVENT["start"]}}, "calendar.end"),
        ({"calendar": {**EVENT, "start": "tomorrow"}}, "calendar.start"),
        ({"calendar": {**EVENT, "organizer": None}}, "calendar.organizer"),
        ({"calendar": {**EVENT, "organizer": "a@example.org\r\nATTENDEE:mailto:b@example.org"}}, "calendar.organizer"),
        ({"calendar": {**EVENT, "organizer": "nobody"}}, "calendar.organizer"),
        ({"attachments": [file(kind="multipart/mixed")]}, "attachments[0].contentType"),
        ({"attachments": [file(kind="Message/RFC822")]}, "attachments[0].contentType"),
    ],
)
def test_what_could_not_be_sent_is_refused_with_its_field(stand: MailStand, fields: Any, field: str) -> None:
    reply = stand.send(**fields)
    assert (reply.status, reply.body["error"]["code"]) == (400, "VALIDATION_ERROR"), reply
    assert reply.body["error"]["details"][0]["field"] == field, reply
    explained = stand.client.call(
        "POST",
        "/api/v1/notifications/explain",
        {"templateKey": "order", "channel": "email", "recipient": ADA, "data": {"number": "7"}, **fields},
    )
    assert explained.status == 400 or explained.body["outcome"] == "rejected"


@pytest.mark.req("P-117")
def test_sizes_are_limited_and_only_an_email_has_files(stand: MailStand) -> None:
    large = stand.send(attachments=[file(content=b"x" * 600_000), file("b.pdf", b"x" * 600_000)])
    assert (large.status, large.body["error"]["code"]) == (413, "PAYLOAD_TOO_LARGE")
    sms = stand.send("welcome", channel="push", recipient="device", cc=["a@example.org"])
    assert (sms.status, sms.body["error"]["details"][0]["field"]) == (400, "cc")


@pytest.mark.req("P-118")
def test_explain_and_story_show_what_it_carries_without_the_bytes(stand: MailStand, ada: str) -> None:
    body = {"templateKey": "order", "channel": "email", "recipient": ada, "data": {"number": "7"}, **everything()}
    explained = stand.client.call("POST", "/api/v1/notifications/explain", body).body
    (step,) = [one for one in explained["steps"] if one["step"] == "render"]
    story = stand.until(stand.sent(recipient=ada, **everything()), "delivered")
    for mail in (step["detail"]["mail"], story["routes"][0]["message"]["mail"]):
        assert (mail["cc"], mail["bcc"], mail["replyTo"]) == ([CC], [BCC], "help@example.org")
        assert mail["headers"] == {"X-Order": "4711"}
        files = [(one["filename"], one["bytes"], one["inline"]) for one in mail["attachments"]]
        assert files == [("invoice.pdf", len(PDF), False), ("logo.png", len(PNG), True)]
        assert base64.b64encode(PDF).decode() not in json.dumps(mail)


@pytest.mark.req("P-117")
def test_the_same_key_with_another_file_is_a_conflict(stand: MailStand, ada: str) -> None:
    key = {"Idempotency-Key": f"file-{ada}"}
    first = stand.send(recipient=ada, attachments=[file()], http=key)
    again = stand.send(recipient=ada, attachments=[file()], http=key)
    other = stand.send(recipient=ada, attachments=[file(content=b"another")], http=key)
    assert (first.status, again.status, other.status) == (202, 202, 409)
    assert first.body["notificationId"] == again.body["notificationId"]


@pytest.mark.req("P-1121")
def test_a_long_header_is_sent_as_it_was_given(stand: MailStand, ada: str) -> None:
    """Longer than a line of 78: an encoded id belongs to no conversation, whichever mail program reads it."""
    answered = f"<{'k' * 90}@mail.example>"
    headers = {"In-Reply-To": answered, "References": f"<1@mail.example> {answered}", "X-Trace": "t" * 200}
    stand.until(stand.sent(recipient=ada, headers=headers), "delivered")
    (mail,) = by_smtp(stand, ada)
    head = mail.content.partition(b"\r\n\r\n")[0].decode()
    for name, value in headers.items():
        assert f"{name}: {value}" in head.replace("\r\n ", " ")
    assert max(map(len, head.split("\r\n"))) < 998
