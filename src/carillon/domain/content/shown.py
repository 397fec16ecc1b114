"""A rendered message as operators see it: what it says and carries, without the bytes of its files."""

from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, UnsetType

from carillon.domain.content.mail import Attachment, Invitation, MailParts
from carillon.domain.content.parts import InAppAction, InAppParts, PushParts
from carillon.domain.content.sms import Segments, segments_of
from carillon.domain.notifications import Message


class AttachmentView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A file of an email."""

    filename: str
    content_type: str
    inline: bool
    bytes: int | None
    """None while it is still to be fetched."""
    url: str | UnsetType = UNSET
    """Without its query, which may hold a credential."""


class MailView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What an email carries beside its text."""

    attachments: list[AttachmentView]
    cc: list[str]
    bcc: list[str]
    reply_to: str | None
    headers: dict[str, str]
    calendar: Invitation | UnsetType = UNSET
    sender: str | UnsetType = UNSET
    """Only if it is not the provider's own."""
    left_out: list[str] | UnsetType = UNSET
    """Copies that were not written to, because their address was suppressed at the attempt."""


class MessageView(msgspec.Struct, frozen=True, kw_only=True):
    """The content that was rendered for the channel."""

    text: str
    subject: str | None = None
    html: str | None = None
    segments: Segments | UnsetType = UNSET
    """The parts in which a carrier sends and charges it; only of a text message."""
    mail: MailView | UnsetType = UNSET
    """Only of an email that carries more than its text."""
    push: PushParts | UnsetType = UNSET
    in_app: InAppParts | UnsetType = msgspec.field(default=UNSET, name="inApp")


def message_view(channel: str, message: Message) -> MessageView:
    return MessageView(
        text=message.text,
        subject=message.subject,
        html=message.html,
        segments=segments_of(message.text) if channel == "sms" else UNSET,
        mail=_mail_view(message.mail),
        push=UNSET if message.push is None else message.push,
        in_app=UNSET if message.in_app is None else message.in_app,
    )


class InboxPayload(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What the inbox of a person shows of a message."""

    title: str | None = None
    body: str
    url: str | None = None
    icon: str | None = None
    actions: tuple[InAppAction, ...] = ()


def inbox_payload(message: Message) -> InboxPayload:
    parts = message.in_app or InAppParts()
    return InboxPayload(title=message.subject, body=message.text, url=parts.url, icon=parts.icon, actions=parts.actions)


def _mail_view(parts: MailParts | None) -> MailView | UnsetType:
    # The time of a scheduled mail is kept with its parts, and is nothing that it carries.
    if parts is None or msgspec.structs.replace(parts, date_ms=None) == MailParts():
        return UNSET
    return MailView(
        attachments=[_attachment_view(one) for one in parts.attachments],
        cc=list(parts.cc),
        bcc=list(parts.bcc),
        reply_to=parts.reply_to,
        headers=parts.headers,
        calendar=UNSET if parts.calendar is None else parts.calendar,
        sender=UNSET if parts.sender is None else parts.sender,
        left_out=list(parts.left_out) or UNSET,
    )


def _attachment_view(one: Attachment) -> AttachmentView:
    return AttachmentView(
        filename=one.filename,
        content_type=one.content_type,
        inline=one.inline,
        bytes=None if one.content is None else one.size(),
        url=UNSET if one.url is None else _bare(one.url),
    )


def _bare(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"
