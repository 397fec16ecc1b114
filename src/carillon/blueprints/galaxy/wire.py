"""The wire format of the galaxy blueprint: stream entries become intents, claims become stream entries."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import flatbuffers
import msgspec

from carillon.blueprints.galaxy.catalogue import (
    CHANNELS,
    AudienceKind,
    NotificationType,
    PayloadKind,
    PushTable,
    TypeCatalogue,
    admin_addresses,
)
from carillon.blueprints.galaxy.catalogue import read as read_catalogue
from carillon.blueprints.galaxy.envelope import (
    INVALID_AUDIENCE,
    INVALID_ENVELOPE,
    INVALID_RECIPIENTS,
    LONGEST_WORD,
    UNSUPPORTED_TYPE,
    IntentEnvelope,
    kept,
    read_asked,
    read_envelope,
    read_payload,
    read_user_ids,
)
from carillon.domain.addresses import reference
from carillon.domain.claims import Claim
from carillon.domain.content.wishes import SendWishes, wished, with_wishes
from carillon.domain.errors import BadIntent, ConfigurationError
from carillon.domain.intents import Intent, Malformed, Recipient

Entry = dict[str, str | bytes]
Encoder = Callable[[Claim], Entry]

DEFAULT_LOCALE = "en"
_USER = "user:"
_INT64 = range(-(2**63), 2**63)
_REMEMBERED = 4096
# A cached payload costs its own size, so the longest are not cached.
_LONGEST_REMEMBERED = 4096

_payload = msgspec.json.Decoder(dict[str, Any])
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_text = msgspec.json.Encoder()


def push_encoder(catalogue: TypeCatalogue) -> Encoder:
    """The encoder of push claims of the catalogue's types; it may raise ValueError."""
    tables = {name: entry.push for name, entry in catalogue.types.items() if entry.push is not None}

    def payload_bytes(notification_type: str, payload_json: str) -> bytes:
        table = tables.get(notification_type)
        if table is None:
            raise ValueError(f"{notification_type} has no push payload")
        return table_bytes(table, _read(_payload, payload_json))

    remembered = lru_cache(maxsize=_REMEMBERED)(payload_bytes)

    def encode(claim: Claim) -> Entry:
        if not claim.recipient_ref.startswith(_USER):
            raise ValueError(f"{claim.recipient_ref} is not a user; push reaches users only")
        make = remembered if len(claim.payload_json) <= _LONGEST_REMEMBERED else payload_bytes
        entry: Entry = {
            "user_id": claim.recipient_ref[len(_USER) :],
            "event_type": claim.notification_type,
            "event_id": claim.idempotency_key,
            "payload_bytes": make(claim.notification_type, claim.payload_json),
        }
        return _traced(entry, claim)

    return encode


def table_bytes(table: PushTable, payload: Mapping[str, Any]) -> bytes:
    """One FlatBuffers root table, without file identifier or size prefix; raises ValueError."""
    builder = flatbuffers.Builder(256)
    values: list[int] = []
    for slot in table.fields:
        value = payload.get(slot.name)
        if slot.kind == "string":
            if type(value) is not str:
                raise ValueError(f"{slot.name} must be a string")
            # FlatBuffers writes strings before their table, which holds only their offsets.
            values.append(builder.CreateString(value))
        else:
            if type(value) is not int or value not in _INT64:
                raise ValueError(f"{slot.name} must be an integer of 64 bits")
            values.append(value)
    builder.StartObject(len(table.fields))
    for place, (slot, value) in enumerate(zip(table.fields, values, strict=True)):
        if slot.kind == "string":
            builder.PrependUOffsetTRelativeSlot(place, value, 0)
        else:
            builder.PrependInt64Slot(place, value, 0)
    builder.Finish(builder.EndObject())
    return bytes(builder.Output())


def encode_mail(claim: Claim) -> Entry:
    """The template-mode command for one address; may raise ValueError."""
    if not claim.address:
        raise ValueError(f"{claim.route_id} has no address")
    _read(_object, claim.payload_json)
    entry: Entry = {
        "delivery_id": claim.idempotency_key,
        "source": "notification",
        "payload_mode": "template",
        "idempotency_key": f"notification:{claim.idempotency_key}",
        "requested_at_ms": str(claim.accepted_at_ms),
        # The stored payload is canonical already: do not parse and write it again.
        "payload_json": (
            f'{{"to":[{_quoted(claim.address)}],"cc":[],"bcc":[],"reply_to":[],'
            f'"template_id":{_quoted(claim.notification_type)},'
            f'"locale":{_quoted(claim.resolved_locale or DEFAULT_LOCALE)},'
            f'"variables":{claim.payload_json},"attachments":[]}}'
        ),
    }
    return _traced(entry, claim)


def _read(reader: msgspec.json.Decoder[dict[str, Any]], payload_json: str) -> dict[str, Any]:
    try:
        return reader.decode(payload_json)
    except msgspec.MsgspecError as error:
        raise ValueError(f"the stored payload is corrupt: {error}") from None


def _quoted(text: str) -> str:
    return _text.encode(text).decode()


def _traced(entry: Entry, claim: Claim) -> Entry:
    if claim.request_id:
        entry["request_id"] = claim.request_id
    if claim.trace_id:
        entry["trace_id"] = claim.trace_id
    return entry


class AudienceRule(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one type for one audience, fixed at the start."""

    producer: str
    required: dict[str, PayloadKind]
    channels: tuple[str, ...]
    skips: dict[str, str]
    category: str | None = None
    administrators: tuple[Recipient, ...] | None = None
    """None if the entry names its users."""


class GalaxyWire:
    """Decodes and encodes all stream entries of this blueprint; immutable, and safe to share."""

    def __init__(self, rules: dict[str, dict[str, AudienceRule]], encoders: dict[str, Encoder]) -> None:
        self._rules = rules
        self.encoders = encoders
        """The encoder of each channel, which returns the fields of an outgoing entry; it may raise ValueError."""

    @classmethod
    def open(cls, catalogue: TypeCatalogue, admin_emails: Mapping[str, list[str]]) -> "GalaxyWire":
        """Build the rules; `admin_emails` maps types to addresses; raises ConfigurationError for a wrong one."""
        known = catalogue.of_audience("admin_email")
        for stranger in sorted(set(admin_emails) - set(known)):
            raise ConfigurationError(f"administrators of {stranger}: that type has no administrators")
        addresses = {name: admin_addresses(name, admin_emails.get(name, [])) for name in known}
        rules: dict[str, dict[str, AudienceRule]] = {
            name: {kind: _rule(name, entry, kind, addresses.get(name, ())) for kind in entry.audiences}
            for name, entry in catalogue.types.items()
        }
        return cls(rules, {"push": push_encoder(catalogue), "email": encode_mail})

    def decode(self, entry_id: str, fields: Mapping[str, str]) -> Intent | Malformed:
        """Read one entry of the stream; a malformed one is a value, never an exception."""
        try:
            return self._read(entry_id, read_envelope(fields), read_asked(fields))
        except BadIntent as refusal:
            return Malformed(
                stream_entry_id=entry_id,
                failure_code=refusal.code,
                failure_message=str(refusal),
                raw_fields=kept(fields),
                notification_type=_word(fields, "notification_type"),
                producer=_word(fields, "producer"),
                idempotency_key=_word(fields, "idempotency_key"),
            )

    def producer_of(self, notification_type: str) -> str:
        """The producer of this type; raises BadIntent for an unknown type."""
        return next(iter(self._audiences(notification_type).values())).producer

    def _read(self, entry_id: str, envelope: IntentEnvelope, wishes: SendWishes) -> Intent:
        rule = self._rule_for(envelope)
        user_ids = None
        if rule.administrators is None:
            user_ids = read_user_ids(envelope.recipient_user_ids_json)
        elif envelope.recipient_user_ids_json is not None:
            raise BadIntent(INVALID_RECIPIENTS, "audience_kind=admin_email forbids recipient_user_ids_json")
        payload = read_payload(envelope.payload_json, rule.required)
        channels, skips = _chosen(envelope.notification_type, rule, wishes.channels)
        intent = Intent(
            notification_id=entry_id,
            notification_type=envelope.notification_type,
            producer=envelope.producer,
            audience_kind=envelope.audience_kind,
            idempotency_key=envelope.idempotency_key,
            occurred_at_ms=envelope.occurred_at_ms,
            request_id=envelope.request_id,
            trace_id=envelope.trace_id,
            payload=payload,
            content={
                "audience_kind": envelope.audience_kind,
                "idempotency_key": envelope.idempotency_key,
                "notification_type": envelope.notification_type,
                "occurred_at_ms": envelope.occurred_at_ms,
                "payload": payload,
                "producer": envelope.producer,
                "recipient_user_ids": user_ids,
                **wished(wishes),
            },
            category=rule.category,
            recipients=_users(user_ids, rule.channels) if user_ids is not None else rule.administrators or (),
            channels=channels,
            skips=skips,
        )
        try:
            return with_wishes(intent, wishes)
        except BadIntent as error:
            raise BadIntent(INVALID_ENVELOPE, str(error)) from None

    def _rule_for(self, envelope: IntentEnvelope) -> AudienceRule:
        audiences = self._audiences(envelope.notification_type)
        rule = audiences.get(envelope.audience_kind)
        if rule is None:
            known = " or ".join(audiences)
            raise BadIntent(INVALID_AUDIENCE, f"audience_kind of {envelope.notification_type} must be {known}")
        if envelope.producer != rule.producer:
            raise BadIntent(INVALID_ENVELOPE, f"{envelope.notification_type} is published by {rule.producer} only")
        return rule

    def _audiences(self, notification_type: str) -> dict[str, AudienceRule]:
        audiences = self._rules.get(notification_type)
        if audiences is None:
            raise BadIntent(UNSUPPORTED_TYPE, f"{notification_type[:LONGEST_WORD]} is not in the catalogue")
        return audiences


def _rule(name: str, entry: NotificationType, kind: AudienceKind, addresses: tuple[str, ...]) -> AudienceRule:
    channels: tuple[str, ...] = entry.audiences[kind]
    skips = {channel: _outside(channel, name, entry, kind) for channel in CHANNELS if channel not in channels}
    administrators: tuple[Recipient, ...] | None = None
    if kind == "admin_email":
        administrators = tuple(
            Recipient(ref=reference("email", address), addresses={"email": address}, locale=DEFAULT_LOCALE)
            for address in addresses
        )
        if not addresses:
            # Without recipients, store one skipped route, so that an operator sees it.
            administrators = (Recipient(ref=f"config:{name}"),)
            channels, skips = (), {"email": f"no administrator address is configured for {name}"}
    return AudienceRule(
        producer=entry.producer,
        required=entry.required,
        channels=channels,
        skips=skips,
        category=entry.category,
        administrators=administrators,
    )


def _outside(channel: str, name: str, entry: NotificationType, kind: AudienceKind) -> str:
    elsewhere = any(channel in channels for channels in entry.audiences.values())
    return f"{channel} is not a channel of {name}{f' for audience {kind}' if elsewhere else ''}"


def _chosen(name: str, rule: AudienceRule, wanted: tuple[str, ...]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The channels of an entry in its own order, and why the others of its type are left out."""
    if not wanted:
        return rule.channels, rule.skips
    for channel in wanted:
        if channel not in rule.channels:
            known = ", ".join(rule.channels) or "none"
            raise BadIntent(INVALID_ENVELOPE, f"channels: {name} has no {channel}; its channels here are {known}")
    chosen = tuple(dict.fromkeys(wanted))
    left = {channel: "not among the channels of the intent" for channel in rule.channels if channel not in chosen}
    return chosen, rule.skips | left


def _users(user_ids: list[str], channels: tuple[str, ...]) -> tuple[Recipient, ...]:
    push = "push" in channels
    return tuple(
        Recipient(ref=f"user:{user_id}", user_id=user_id, addresses={"push": user_id} if push else {})
        for user_id in user_ids
    )


def _word(fields: Mapping[str, str], name: str) -> str | None:
    return fields.get(name, "")[:LONGEST_WORD] or None


def open_wire(catalogue_file: Path | None, admin_emails: Mapping[str, list[str]]) -> GalaxyWire:
    """The wire format of a running process; the file adds types to the shipped catalogue."""
    return GalaxyWire.open(read_catalogue(catalogue_file), admin_emails)
