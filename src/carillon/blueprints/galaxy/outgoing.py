"""The outgoing entries of `gateway:client-events` and `mail:delivery_commands`, encoded from a claim."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import flatbuffers
import msgspec

from carillon.blueprints.galaxy.catalogue import PushTable, TypeCatalogue
from carillon.domain.claims import Claim

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
            raise ValueError(f"{claim.recipient_ref} is no user; push reaches users only")
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
