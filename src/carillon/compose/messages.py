"""What messages are made with, read from the settings: templates, brands, senders, countries, zones."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.resources import as_file
from pathlib import Path

import msgspec

from carillon.config.messages import MessageSettings
from carillon.config.reading import blueprint_folder
from carillon.config.settings import Settings
from carillon.domain.content.mail import MailRules
from carillon.domain.content.parts import MessageRule, PushParts
from carillon.domain.content.phones import PhoneRules
from carillon.domain.errors import BadTemplate, ConfigurationError
from carillon.intake.carried_fields import leaves
from carillon.intake.jinja.ready import Composer
from carillon.intake.parts import CarryRules
from carillon.intake.render import compile_template
from carillon.intake.templates import FileTemplates
from carillon.providers.mail import parse_sender

_COUNTRY = re.compile(r"[A-Z]{2}")


def zone_of(settings: Settings, tenant_id: str | None) -> str:
    """The time zone of people of a tenant who have said none."""
    tenant = settings.tenant.get(tenant_id or "")
    return (tenant and tenant.time_zone) or settings.locale.time_zone


def carry_rules(settings: Settings) -> CarryRules:
    """What messages may carry; refuses a sender or a country that is none."""
    given = settings.mail
    rules = MailRules(
        attachment_bytes=given.attachment_bytes,
        types=tuple(given.types),
        copies=given.copies,
        headers=tuple(given.headers),
    )
    senders = {name: tenant.sender for name, tenant in settings.tenant.items() if tenant.sender is not None}
    own = {key: _message_rule(key, one) for key, one in settings.message.items()}
    for name, sender in senders.items():
        _check_sender(f"tenant.{name}.sender", sender)
    missing = settings.templates.missing_variable
    return CarryRules(mail=rules, phones=phone_rules(settings), messages=own, senders=senders, missing_variable=missing)


def _message_rule(key: str, given: MessageSettings) -> MessageRule:
    for option, sender in (("sender", given.sender), ("reply_to", given.reply_to)):
        _check_sender(f"message.{key}.{option}", sender)
    for name, parts in (("push", given.push), ("in_app", given.in_app)):
        for path, text in leaves(msgspec.to_builtins(parts), f"message.{key}.{name}"):
            try:
                compile_template(text if "{{" in text else "")
            except BadTemplate as error:
                raise ConfigurationError(f"{path}: {error}") from None
    return MessageRule(
        sender=given.sender,
        reply_to=given.reply_to,
        max_segments=given.max_segments,
        transliterate=given.transliterate,
        push=None if given.push is None else PushParts(**msgspec.structs.asdict(given.push)),
        in_app=given.in_app,
    )


def _check_sender(option: str, sender: str | None) -> None:
    try:
        if sender is not None:
            parse_sender(sender)
    except ValueError as error:
        raise ConfigurationError(f"{option}: {error}") from None


def phone_rules(settings: Settings) -> PhoneRules:
    """To which numbers text messages go."""
    tenants = {name: one.sms_countries for name, one in settings.tenant.items() if one.sms_countries is not None}
    for option, countries in (("sms.countries", settings.sms.countries), *tenants.items()):
        wrong = [country for country in countries if not _COUNTRY.fullmatch(country)]
        if wrong:
            raise ConfigurationError(f"{option}: {wrong[0]!r} is not a country; write two letters, such as DE")
    return PhoneRules(
        check=settings.sms.check,
        countries=frozenset(settings.sms.countries),
        tenants={name: frozenset(countries) for name, countries in tenants.items()},
    )


def templates(settings: Settings, faults: list[str] | None = None) -> FileTemplates:
    """All templates in the folders that the settings name."""
    with ExitStack() as stack:
        return FileTemplates.read(*_folders(settings, stack), composer=composer(settings), faults=faults)


def composer(settings: Settings) -> Composer:
    """What all jinja templates share."""
    return Composer(
        default_locale=settings.locale.default,
        brands=settings.brand,
        tenant_brands={name: tenant.brand for name, tenant in settings.tenant.items() if tenant.brand},
    )


def _folders(settings: Settings, stack: ExitStack) -> Iterator[Path]:
    for word in settings.templates.folders:
        if word.startswith("blueprint:"):
            inside = blueprint_folder(settings.blueprint) / word.removeprefix("blueprint:")
            yield stack.enter_context(as_file(inside))
        else:
            folder = Path(word).expanduser()
            if not folder.is_dir():
                raise ConfigurationError(f"templates.folders: {folder} is not a folder")
            yield folder
