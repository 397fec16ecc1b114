"""Mails that are written, and texts that must not become one."""

from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default as default_policy
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from carillon.domain.claims import Claim, Dispatch
from carillon.domain.content.mail import Attachment, MailParts
from carillon.domain.notifications import Message
from carillon.providers.letters import Letter, write_letter
from carillon.providers.mail import Mail, Mailbox, parse_mailbox, parse_sender, read_mail
from tests.support.dispatches import MESSAGE, dispatch

SENDER = Mailbox("bells", "carillon.example", "Carillon")
ACCEPTED = 1_700_000_100_000
HEADERS = {
    *("From", "To", "Subject", "Date", "Message-ID", "X-Carillon-Notification", "Auto-Submitted"),
    *("MIME-Version", "Content-Type"),
}


def claim(address: str = "ada@example.com", **fields: Any) -> Claim:
    given = {"channel": "email", "route_id": "email:ada", "address": address, "accepted_at_ms": ACCEPTED}
    return dispatch(**{**given, **fields}).claim


def written(claim: Claim, message: Message) -> Letter:
    mail = read_mail(Dispatch(claim, message, 5.0), SENDER, needs_subject=False)
    if not isinstance(mail, Mail):
        raise ValueError(mail.error)  # noqa: TRY004 - the refusal of a text, not of a type
    return write_letter(claim, mail)


def parsed(letter: Letter) -> EmailMessage:
    return BytesParser(policy=default_policy).parsebytes(letter.content)


def test_a_mail_has_exactly_these_headers() -> None:
    mail = parsed(written(claim(), MESSAGE))
    assert set(mail.keys()) == HEADERS
    assert mail["From"] == "Carillon <bells@carillon.example>"
    assert mail["To"] == "ada@example.com"
    assert mail["Subject"] == "Table 7"
    assert mail["Date"] == "Tue, 14 Nov 2023 22:15:00 +0000"
    assert mail["X-Carillon-Notification"] == "0191f0a0-0000-7000-8000-000000000001"
    text, html = mail.iter_parts()
    assert text.get_content() == "Your table is ready.\r\n"
    assert html.get_content() == "<p>Your table is <b>ready</b>.</p>\r\n"


def test_a_repeat_is_the_same_mail() -> None:
    first, second = (written(claim(), MESSAGE) for _ in range(2))
    assert first == second
    other = written(claim(notification_id="other"), MESSAGE)
    assert other.message_id != first.message_id
    assert first.message_id.endswith("@carillon.example>")


@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
    st.none() | st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=200),
    st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
)
def test_whatever_is_said_no_header_appears_or_disappears(text: str, subject: str | None, html: str | None) -> None:
    letter = written(claim(), Message(text=text, subject=subject, html=html))
    mail = parsed(letter)
    assert set(mail.keys()) - {"Content-Transfer-Encoding"} <= HEADERS
    assert len(mail.keys()) == len(set(mail.keys()))
    assert letter.content.isascii()
    assert all(line.endswith(b"\r\n") for line in letter.content.splitlines(keepends=True)[:-1] if b"\n" in line)
    assert b"\r" not in letter.content.replace(b"\r\n", b"")


@pytest.mark.parametrize(
    "breaker", ["\r", "\n", "\r\n", "\0", "\x0b", "\x0c", "\x1c", "\x1e", "\x85", "\u2028", "\u2029", "\ud800"]
)
def test_a_line_cannot_be_broken(breaker: str) -> None:
    evil = f"a{breaker}Bcc: victim@example.com"
    with pytest.raises(ValueError, match="subject"):
        written(claim(), Message(text="x", subject=evil))
    with pytest.raises(ValueError, match="notification id"):
        written(claim(notification_id=evil), MESSAGE)
    for address in (
        f"a{breaker}b@example.com",
        f"a@exa{breaker}mple.com",
        f"a@example.com{breaker}",
        f"{breaker}a@b.example",
    ):
        with pytest.raises(ValueError):
            written(claim(address), MESSAGE)
    with pytest.raises(ValueError):
        parse_sender(f"a{breaker}b <a@example.com>")


FRAGMENTS = st.sampled_from(["=?", "?=", "utf-8", "?q?", "?b?", "=0D=0A", "DQo=", "Bcc:_a@b.example", " ", "x", "ü"])


@given(st.lists(FRAGMENTS, max_size=30).map("".join))
@example("=?utf-8?q?=0D=0ABcc:_victim@example.com?=")
@example("=?utf-8?b?DQpCY2M6IHZpY3RpbUBleGFtcGxlLmNvbQ==?=")
def test_an_encoded_word_stays_text(subject: str) -> None:
    mail = parsed(written(claim(), Message(text="x", subject=subject)))
    assert set(mail.keys()) - {"Content-Transfer-Encoding"} == HEADERS
    if "=?" in subject:
        assert mail["Subject"] == subject


@pytest.mark.parametrize("word", ["=?utf-8?q?=0D=0ABcc?=", "=?utf-8?b?DQpCY2M=?="])
def test_an_encoded_word_is_no_address_name_or_id(word: str) -> None:
    with pytest.raises(ValueError):
        written(claim(f"{word}@example.com"), MESSAGE)
    with pytest.raises(ValueError):
        written(claim(notification_id=word), MESSAGE)
    with pytest.raises(ValueError):
        parse_sender(f"{word} <a@example.com>")


def test_lone_surrogates_are_not_text() -> None:
    with pytest.raises(ValueError):
        written(claim(), Message(text="\ud800"))


@pytest.mark.parametrize(
    ("text", "mailbox"),
    [
        ("a@b.example", Mailbox("a", "b.example")),
        ("first.last+tag@sub.b.example", Mailbox("first.last+tag", "sub.b.example")),
        ("root@localhost", Mailbox("root", "localhost")),
        ("a@bücher.example", Mailbox("a", "xn--bcher-kva.example")),
        ("jörg@b.example", Mailbox("jörg", "b.example")),
    ],
)
def test_addresses(text: str, mailbox: Mailbox) -> None:
    assert parse_mailbox(text) == mailbox


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "a",
            "@",
            "a@",
            "@b",
            "a@b@c",
            "a b@c.example",
            "a@b c",
            ".a@b.example",
            "a.@b.example",
            "a..b@c.example",
        ),
        *('"a b"@c.example', "a@[127.0.0.1]", "a@b..example", "a@-b.example", "a@b.example.", "A <a@b.example>"),
        *(
            "a@b.example,c@d.example",
            "a@b.example;c",
            "<a@b.example>",
            "a(b)@c.example",
            "a@b.example>",
            "a@b_c.example",
        ),
        *(
            "x" * 65 + "@b.example",
            "a@" + "b" * 64 + ".example",
            "a@" + "b.example." * 30 + "example",
            "a\u00a0b@c.example",
        ),
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError):
        parse_mailbox(text)


@pytest.mark.parametrize(
    ("text", "mailbox"),
    [
        ("a@b.example", Mailbox("a", "b.example")),
        ("Ringer <a@b.example>", Mailbox("a", "b.example", "Ringer")),
        ('"The Ringer, Ltd." <a@b.example>', Mailbox("a", "b.example", "The Ringer, Ltd.")),
        ("<a@b.example>", Mailbox("a", "b.example")),
        ("Jörg <a@b.example>", Mailbox("a", "b.example", "Jörg")),
    ],
)
def test_senders(text: str, mailbox: Mailbox) -> None:
    assert parse_sender(text) == mailbox


@pytest.mark.req("P-112")
def test_a_letter_with_files_is_the_same_at_every_repeat_and_names_no_blind_copy() -> None:
    mail = MailParts(
        attachments=(
            Attachment(filename="süß.pdf", content_type="application/pdf", content="aGk="),
            Attachment(filename="logo.png", content_type="image/png", content="aGk=", inline=True),
        ),
        cc=("boss@example.org",),
        bcc=("archive@example.org",),
        headers={"X-Order": "7"},
    )
    message = msgspec.structs.replace(MESSAGE, mail=mail)
    first, second = written(claim(), message), written(claim(attempt=3, provider="other"), message)
    assert first == second
    assert [one.address for one in first.copies] == ["boss@example.org", "archive@example.org"]
    assert b"archive" not in first.content
    found = parsed(first)
    assert set(found.keys()) == HEADERS | {"Cc", "X-Order"}
    assert [part.get_filename() for part in found.walk() if part.get_filename()] == ["logo.png", "süß.pdf"]
    assert len({part.get_boundary() for part in found.walk() if part.is_multipart()}) == 3


@pytest.mark.req("P-117")
@pytest.mark.parametrize("breaker", ["\r\n", "\n", "\0", "\x0b", "\u2028", "\x85"])
def test_stored_parts_cannot_break_a_line_either(breaker: str) -> None:
    evil = f"a{breaker}Bcc: victim@example.com"
    for parts in (
        MailParts(headers={"X-A": evil}),
        MailParts(headers={evil: "a"}),
        MailParts(reply_to=evil),
        MailParts(cc=(evil,)),
        MailParts(sender=f"{evil} <a@b.example>"),
        MailParts(attachments=(Attachment(filename=evil, content_type="text/plain", content="aGk="),)),
    ):
        with pytest.raises(ValueError):
            written(claim(), msgspec.structs.replace(MESSAGE, mail=parts))


def test_a_scheduled_mail_is_dated_when_it_was_due() -> None:
    message = msgspec.structs.replace(MESSAGE, mail=MailParts(date_ms=1_800_000_000_000))
    assert parsed(written(claim(), message))["Date"] == "Fri, 15 Jan 2027 08:00:00 +0000"


@pytest.mark.req("P-1121")
@pytest.mark.parametrize("link", [None, "https://example.org/u/" + "x" * 120])
def test_a_long_subject_is_written_in_words_that_every_program_decodes(link: str | None) -> None:
    """No encoded word is longer than a line of 78 characters, also in a mail with a link to leave."""
    subject = "Bestätigung über Möbel für Ihr Büro " * 5
    one = claim()
    one.unsubscribe_url = link
    letter = written(one, msgspec.structs.replace(MESSAGE, subject=subject.strip()))
    head = letter.content.partition(b"\r\n\r\n")[0].decode()
    assert (f"List-Unsubscribe: <{link}>\r\n" in head) is (link is not None)
    words = [word for word in head.split() if word.startswith("=?")]
    assert words
    assert max(map(len, words)) <= 78 - len(" ")
    assert parsed(letter)["Subject"] == subject.strip()
