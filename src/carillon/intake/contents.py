"""What each recipient gets on each channel: rendered here, or left to whoever renders downstream."""

from carillon.domain.errors import BadIntent
from carillon.domain.explain import Tell
from carillon.domain.intents import Intent, Recipient
from carillon.domain.locale import resolve_locale, wished_locale
from carillon.domain.notifications import Template
from carillon.domain.ports import Templates
from carillon.intake.plan import Content, PlanRules
from carillon.intake.render import render_message


class Contents:
    """Finds address, locale and message of every route; refuses what could not be sent."""

    def __init__(self, templates: Templates, rules: PlanRules) -> None:
        self._templates = templates
        self._rules = rules

    async def of(self, intent: Intent, tell: Tell | None = None) -> list[Content]:
        """One content for every channel and recipient, the skipped ones among them; raises BadIntent."""
        channels = await self._channels(intent)
        if tell is not None:
            tell("channel", {"channels": channels, "named": bool(intent.channels)})
        found = [
            await self._content(intent, recipient, channel, tell)
            for channel in channels
            for recipient in intent.recipients
        ]
        for channel, reason in intent.skips.items():
            found += [self._skipped(intent, recipient, channel, reason) for recipient in intent.recipients]
        return found

    async def _channels(self, intent: Intent) -> tuple[str, ...]:
        for channel in (*intent.channels, *intent.skips):
            if channel not in self._rules.channels:
                raise BadIntent("UNKNOWN_CHANNEL", f"channel {channel} has no provider here", field="channel")
        if intent.channels or intent.skips:
            return tuple(dict.fromkeys(intent.channels))
        existing = sorted(
            {channel for channel, _ in await self._templates.variants(intent.notification_type, intent.tenant_id)}
        )
        if not existing:
            raise BadIntent("TEMPLATE_NOT_FOUND", f"Template {intent.notification_type} not found", field="templateKey")
        if len(existing) > 1:
            raise BadIntent(
                "CHANNEL_REQUIRED",
                f"template {intent.notification_type} exists for {', '.join(existing)}: say which channel",
                field="channel",
            )
        return (existing[0],)

    async def _content(self, intent: Intent, recipient: Recipient, channel: str, tell: Tell | None) -> Content:
        reason = recipient.unreachable.get(channel)
        if reason is not None:
            return self._skipped(intent, recipient, channel, reason)
        address = _address(recipient, channel, tell)
        if self._rules.supported_locales:
            return Content(recipient.ref, channel, address, self._downstream_locale(intent, recipient))
        template = await self._template(intent, recipient, channel, tell)
        message = render_message(template, intent.payload, self._rules.missing_variable)
        if tell is not None:
            tell("render", {"subject": message.subject, "text": message.text, "html": message.html})
        return Content(recipient.ref, channel, address, template.locale, message)

    async def _template(self, intent: Intent, recipient: Recipient, channel: str, tell: Tell | None) -> Template:
        code = intent.notification_type
        wished = self._wished(intent, recipient)
        variants = await self._templates.variants(code, intent.tenant_id)
        existing = [locale for there, locale in variants if there == channel]
        locale = resolve_locale(wished, existing, self._rules.locale)
        if tell is not None:
            tell("locale", {"wished": wished, "resolved": locale, "available": existing})
        template = None if locale is None else await self._templates.find(code, channel, locale, intent.tenant_id)
        if template is None:
            elsewhere = sorted({there for there, _ in variants} - {channel}) if not existing else []
            lacking = f"channel {channel}; it exists for {', '.join(elsewhere)}" if elsewhere else f"locale {wished}"
            raise BadIntent("TEMPLATE_NOT_FOUND", f"Template {code} not found for {lacking}", field="templateKey")
        if tell is not None:
            tell("template", {"templateKey": code, "locale": locale, "version": template.version})
        return template

    def _skipped(self, intent: Intent, recipient: Recipient, channel: str, reason: str) -> Content:
        locale = self._downstream_locale(intent, recipient) if self._rules.supported_locales else None
        return Content(recipient.ref, channel, recipient.addresses.get(channel), locale, skipped_because=reason)

    def _downstream_locale(self, intent: Intent, recipient: Recipient) -> str | None:
        return resolve_locale(self._wished(intent, recipient), self._rules.supported_locales, self._rules.locale)

    def _wished(self, intent: Intent, recipient: Recipient) -> str:
        tenant = self._rules.tenant_locales.get(intent.tenant_id or "")
        return wished_locale(
            intent.locale, recipient.locale, intent.accept_language, tenant, self._rules.locale.default
        )


def _address(recipient: Recipient, channel: str, tell: Tell | None) -> str:
    if channel in recipient.refused:
        raise BadIntent("CHANNEL_DISABLED", f"{recipient.ref} has switched {channel} off", field="channel")
    if tell is not None:
        tell("preferences", {"channel": channel, "preferredLocale": recipient.locale})
    address = recipient.addresses.get(channel) or recipient.addresses.get("*")
    if not address:
        raise BadIntent("RECIPIENT_UNRESOLVED", f"no {channel} address is known for {recipient.ref}", field="recipient")
    if tell is not None:
        tell("recipient", {"recipient": recipient.ref, "channel": channel, "address": address})
    return address
