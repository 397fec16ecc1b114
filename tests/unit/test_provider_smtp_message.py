"""Mails that are written, and texts that must not become one."""

from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default as default_policy
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from carillon.domain.claims import Claim
from carillon.domain.notifications import Message
from carillon.providers.mail import Letter, Mailbox, parse_mailbox, parse_sender, write_letter
from tests.support.dispatches import MESSAGE, dispatch

SENDER = Mailbox("bells", "carillon.example", "Carillon")
NOW = 1_700_000_100.0
HEADERS = {
    *("From", "To", "Subject", "Date", "Message-ID", "X-Carillon-Notification", "Auto-Submitted"),
    *("MIME-Version", "Content-Type"),
}


def claim(address: str = "ada@example.com", **fields: Any) -> Claim:
    return dispatch(channel="email", route_id="email:ada", address=address, **fields).claim


def parsed(letter: Letter) -> EmailMessage:
    return BytesParser(policy=default_policy).parsebytes(letter.content)


def test_a_mail_has_exactly_these_headers() -> None:
    mail = parsed(write_letter(claim(), MESSAGE, SENDER, NOW))
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
    first, second = (write_letter(claim(), MESSAGE, SENDER, NOW) for _ in range(2))
    assert first == second
    other = write_letter(claim(notification_id="other"), MESSAGE, SENDER, NOW)
    assert other.message_id != first.message_id
    assert first.message_id.endswith("@carillon.example>")


@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
    st.none() | st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=200),
    st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
)
def test_whatever_is_said_no_header_appears_or_disappears(text: str, subject: str | None, html: str | None) -> None:
    letter = write_letter(claim(), Message(text=text, subject=subject, html=html), SENDER, NOW)
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
        write_letter(claim(), Message(text="x", subject=evil), SENDER, NOW)
    with pytest.raises(ValueError, match="notification id"):
        write_letter(claim(notification_id=evil), MESSAGE, SENDER, NOW)
    for address in (
        f"a{breaker}b@example.com",
        f"a@exa{breaker}mple.com",
        f"a@example.com{breaker}",
        f"{breaker}a@b.example",
    ):
        with pytest.raises(ValueError):
            write_letter(claim(address), MESSAGE, SENDER, NOW)
    with pytest.raises(ValueError):
        parse_sender(f"a{breaker}b <a@example.com>")


FRAGMENTS = st.sampled_from(["=?", "?=", "utf-8", "?q?", "?b?", "=0D=0A", "DQo=", "Bcc:_a@b.example", " ", "x", "ü"])


@given(st.lists(FRAGMENTS, max_size=30).map("".join))
@example("=?utf-8?q?=0D=0ABcc:_victim@example.com?=")
@example("=?utf-8?b?DQpCY2M6IHZpY3RpbUBleGFtcGxlLmNvbQ==?=")
def test_an_encoded_word_stays_text(subject: str) -> None:
    mail = parsed(write_letter(claim(), Message(text="x", subject=subject), SENDER, NOW))
    assert set(mail.keys()) - {"Content-Transfer-Encoding"} == HEADERS
    if "=?" in subject:
        assert mail["Subject"] == subject


@pytest.mark.parametrize("word", ["=?utf-8?q?=0D=0ABcc?=", "=?utf-8?b?DQpCY2M=?="])
def test_an_encoded_word_is_no_address_name_or_id(word: str) -> None:
    with pytest.raises(ValueError):
        write_letter(claim(f"{word}@example.com"), MESSAGE, SENDER, NOW)
    with pytest.raises(ValueError):
        write_letter(claim(notification_id=word), MESSAGE, SENDER, NOW)
    with pytest.raises(ValueError):
        parse_sender(f"{word} <a@example.com>")


def test_lone_surrogates_are_not_text() -> None:
    with pytest.raises(ValueError):
        write_letter(claim(), Message(text="\ud800"), SENDER, NOW)


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
