"""What a message carries beside its text: from its request, from what the operator says about it, by its channel."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from carillon.domain.content.calendar import times_of
from carillon.domain.content.mail import MailParts, MailRules, check_parts
from carillon.domain.content.parts import (
    InAppParts,
    MessageRule,
    PushParts,
    check_in_app,
    check_push,
    joined,
    rule_for,
)
from carillon.domain.content.phones import PhoneRules, read_phone
from carillon.domain.content.sms import segments_of, transliterate
from carillon.domain.errors import BadIntent
from carillon.domain.intents import Intent
from carillon.domain.notifications import Message, Template
from carillon.intake.carried_fields import filled, leaves
from carillon.intake.render import OnMissing, render_message

_CHANNELS = {"mail": "email", "push": "push", "in_app": "inApp"}
_NO_RULE = MessageRule()
Fill = Callable[[Any], Any]
"""The operator's parts with the values of a request."""


class CarryRules(msgspec.Struct, frozen=True, kw_only=True):
    """What messages may carry, and to whom."""

    mail: MailRules = MailRules()
    phones: PhoneRules = PhoneRules()
    messages: dict[str, MessageRule] = {}
    """By template key, or a prefix with `*`."""
    senders: dict[str, str] = {}
    """The senders of emails of tenants with their own."""
    missing_variable: OnMissing = "error"


def refuse_misplaced(intent: Intent, channels: tuple[str, ...]) -> None:
    """Refuse parts of another channel: nobody would see them."""
    for name, channel in _CHANNELS.items():
        given = getattr(intent, name)
        if given is None or channels == (channel,):
            continue
        field = _named(name, channel, given)
        raise BadIntent("VALIDATION_ERROR", f"{field}: only the channel {channel} has it", field=field)


def refuse_unrendered(intent: Intent) -> None:
    """Refuse parts where another service renders: it gets the data, and nobody would see them."""
    for name, channel in _CHANNELS.items():
        given = getattr(intent, name)
        if given is not None:
            field = _named(name, channel, given)
            said = f"{field}: another service renders the messages here (templates.render), and gets their data alone"
            raise BadIntent("VALIDATION_ERROR", said, field=field)


def _named(name: str, channel: str, given: MailParts | PushParts | InAppParts) -> str:
    return next(iter(msgspec.to_builtins(given)), "headers") if name == "mail" else channel


def refuse_number(address: str, tenant_id: str | None, rules: PhoneRules) -> None:
    """Refuse a number that cannot exist, or whose country the tenant sends no text messages to."""
    wrong = rules.wrong(address)
    if wrong is not None:
        raise BadIntent("VALIDATION_ERROR", f"recipient: {wrong}", field="recipient")
    refusal = rules.refusal(address, tenant_id)
    if refusal is not None:
        raise BadIntent("COUNTRY_NOT_ALLOWED", f"recipient: {refusal}", field="recipient")


def number_shown(address: str) -> dict[str, Any]:
    """What explain says about a phone number."""
    phone = read_phone(address)
    return {} if phone is None else {"country": phone.country, "written": phone.written}


def carried(message: Message, template: Template, intent: Intent, address: str, rules: CarryRules) -> Message:
    """The message with everything that its channel carries; raises BadIntent for what could not be sent."""
    rule = rule_for(intent.notification_type, rules.messages) or _NO_RULE
    fill = _filling(template, intent.payload, rules)
    match template.channel:
        case "email":
            return _email(message, intent, address, rules, rule)
        case "sms":
            return _text_message(message, intent.notification_type, rules)
        case "push":
            # What replaces a waiting notification replaces one on the device too.
            return _push(message, rule, fill, intent.push, intent.timing.collapse_key)
        case "inApp":
            return _in_app(message, rule, fill, intent.in_app)
        case _:
            return message


def previewed(message: Message, template: Template, data: Mapping[str, Any], rules: CarryRules) -> Message:
    """The message as its request would make it that asks for nothing beside; raises BadIntent."""
    rule = rule_for(template.code, rules.messages) or _NO_RULE
    fill = _filling(template, data, rules)
    match template.channel:
        case "sms":
            return spelled(message, "sms", template.code, rules)
        case "push":
            return _push(message, rule, fill, None, None)
        case "inApp":
            return _in_app(message, rule, fill, None)
        case _:
            return message


def too_many_segments(message: Message, channel: str, key: str, rules: CarryRules) -> str | None:
    """Why a text message is refused for its length; None if it may be sent."""
    rule = rule_for(key, rules.messages) if channel == "sms" else None
    if rule is None or rule.max_segments is None:
        return None
    found = segments_of(message.text)
    if found.segments <= rule.max_segments:
        return None
    allowed = f"message.{key}.max_segments allows {rule.max_segments}"
    return f"the text message has {found.segments} parts of {found.encoding}, and {allowed}"


def spelled(message: Message, channel: str, key: str, rules: CarryRules) -> Message:
    """A text message as it is sent: in the cheaper alphabet, where the operator asks for that."""
    rule = rule_for(key, rules.messages) if channel == "sms" else None
    return replace(message, text=transliterate(message.text)) if rule is not None and rule.transliterate else message


def _email(message: Message, intent: Intent, address: str, rules: CarryRules, rule: MessageRule) -> Message:
    parts = intent.mail or MailParts()
    check_parts(parts, address, rules.mail)
    if parts.calendar is not None:
        times_of(parts.calendar)
    sender = rule.sender or rules.senders.get(intent.tenant_id or "")
    # A mail that says it is a week old looks like one that was held back by a spammer.
    parts = replace(parts, sender=sender, reply_to=parts.reply_to or rule.reply_to, date_ms=intent.scheduled_for_ms)
    return message if parts == MailParts() else replace(message, mail=parts)


def _text_message(message: Message, key: str, rules: CarryRules) -> Message:
    message = spelled(message, "sms", key, rules)
    refusal = too_many_segments(message, "sms", key, rules)
    if refusal is not None:
        raise BadIntent("VALIDATION_ERROR", refusal, field="data")
    return message


def _push(
    message: Message, rule: MessageRule, fill: Fill, asked: PushParts | None, collapse_key: str | None
) -> Message:
    if asked is None and rule.push is None and collapse_key is None:
        return message
    said = joined(message.push or PushParts(), None if rule.push is None else fill(rule.push), PushParts)
    parts: PushParts = joined(said, asked, PushParts)
    if parts.collapse_key is None and collapse_key is not None:
        parts = replace(parts, collapse_key=collapse_key)
    check_push(parts)
    return _said(replace(message, push=replace(parts, title=None, body=None)), parts.title, parts.body)


def _in_app(message: Message, rule: MessageRule, fill: Fill, asked: InAppParts | None) -> Message:
    if asked is None and rule.in_app is None:
        return message
    said = joined(message.in_app or InAppParts(), None if rule.in_app is None else fill(rule.in_app), InAppParts)
    parts: InAppParts = joined(said, asked, InAppParts)
    check_in_app(parts)
    return _said(replace(message, in_app=replace(parts, title=None, body=None)), parts.title, parts.body)


def _said(message: Message, title: str | None, body: str | None) -> Message:
    return replace(message, subject=title or message.subject, text=body or message.text)


def _filling(template: Template, data: Mapping[str, Any], rules: CarryRules) -> Fill:
    """Puts values into the operator's parts in place of `{{name}}`, by the rules for the fields of a template."""

    def render(text: str) -> str:
        if "{{" not in text:
            return text
        alone = Template(code="", channel="", locale="", text=text, default_variables=template.default_variables)
        return render_message(alone, data, rules.missing_variable).text

    def fill(parts: Any) -> Any:  # noqa: ANN401 - parts of either channel, and the same again
        said = msgspec.to_builtins(parts)
        if not any("{{" in text for _, text in leaves(said, "")):
            return parts
        return filled(said, type(parts), render, f"message.{template.code}.{template.channel}")

    return fill
