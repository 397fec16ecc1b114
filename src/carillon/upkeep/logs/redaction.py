"""The filters of every log line: rate limit, redaction of secrets and personal data, escaping of control characters."""

import json
import re
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any, Final

import msgspec

REDACTED: Final = "[redacted]"
CONTENT: Final = "[content]"
_CUT: Final = "…[cut]"
_MAX_TEXT, _MAX_ITEMS, _MAX_DEPTH = 12_500, 200, 12
_MAX_REMEMBERED, _MAX_REMEMBERED_LENGTH = 4096, 96
_SHORTEST_SECRET, _LONG_SID, _LONG_NUMBER, _SHORTEST_CARD = 6, 16, 10, 13
_MAX_KEYS, _BURST, _WINDOW_SECONDS = 256, 10, 10.0

# Names are compared in lower case without separators, so that X-Api-Key, api_key and apiKey are one name.
_SECRET_NAMES = frozenset(
    ("authorization", "proxyauthorization", "cookie", "setcookie", "jwt", "whsec", "dsn", "otp", "code", "pin", "pwd")
)
_SECRET_ENDINGS = (
    *("token", "tokens", "secret", "secrets", "password", "passwd", "passphrase", "signature", "credentials"),
    *("apikey", "privatekey", "signingkey", "secretkey", "serverkey", "accesskey", "encryptionkey", "sharedkey"),
    *("databaseurl", "redisurl", "amqpurl", "rabbitmqurl", "smtpurl", "clickhouseurl"),
)
_CONTENT_NAMES = frozenset(
    (
        *("body", "html", "payload", "payloadjson", "messagejson", "metadatajson", "content", "subject"),
        *("variables", "templatevariables", "templatedata", "rawfields", "rendered", "renderedbody"),
    )
)
_PHONE_NAMES = ("phone", "phonenumber", "msisdn", "mobile")

# Every match of the patterns below contains one of these words, and one search for the words is cheap.
_TRIGGER = re.compile(
    r"[@+]|[0-9](?:[ -]?[0-9]){12}|eyj|whs|bearer|basic|-begin|authorization|cookie|api.?key|server.?key|access.?key"
    r"|private.?key|signing.?key|token|jwt|secret|passw|passphrase|pwd|signature|dsn|apa91|sg\.|akia|aiza|\bck_"
    r"|(?:otp|pin|code)[\\\"']*\s*[:=]"
)
_KEYS = r"(?:api|server|access|private|signing)[_-]?key"
_NAMED = rf"({_KEYS}|token|jwt|secret|passw(?:or)?d|passphrase|pwd|signature|dsn|\botp|\bpin|(?<=[\"'])code(?=[\\\"']))"
_LOCAL = r"[^\s@\\\"'<>()\[\],:;=\x00-\x1f]"
_SAYS = r"(\\*[\"']?\s*[:=]\s*)"
_VALUE = r"(?:\\+[\"'][^\"'\\]*|\"(?:\\.|[^\"\\])*\"?|'(?:\\.|[^'\\])*'?|[^\s,;&\"'})\]]+)"
# A pattern runs only if one of its words occurs. Repetitions are bounded or start at a boundary, so that hostile text
# costs linear time.
_PATTERNS: Final = tuple(
    (tuple(words.split()), re.compile(pattern, re.IGNORECASE | re.ASCII), replacement)
    for words, pattern, replacement in (
        ("-begin", r"-----BEGIN [A-Z0-9 ]{1,60}-----[\s\S]*?(?:-----END [A-Z0-9 ]{1,60}-----|\Z)", REDACTED),
        (
            "authorization cookie",
            rf"((?:proxy-)?authorization|(?:set-)?cookie){_SAYS}[\\\"']*[^\r\n\"'}}\\]+",
            rf"\1\2{REDACTED}",
        ),
        ("eyj", r"eyJ[\w-]{4,1000}\.[\w-]{2,}+(?:\.[\w-]*)?", REDACTED),
        ("whs ck_", r"whs(?:ec|k)_[\w+/=-]+|\bck_[0-9A-Z]{8}_[0-9A-Z]{20,}", REDACTED),
        ("bearer basic", r"\b(bearer|basic)(\s+)[\w.~+/=:-]{6,}", rf"\1\2{REDACTED}"),
        # Redact user and password: some vendors put the key in place of the user.
        ("://", r"([a-z][a-z0-9+.-]{0,20}://)[^\s/?#\"'<>]*@(?=[^\s/?#\"'<>@])", rf"\1{REDACTED}@"),
        ("key token jwt secret pass pwd signature dsn otp pin code", _NAMED + _SAYS + _VALUE, rf"\1\2{REDACTED}"),
        ("apa91", r"(?<![\w-])[\w-]{6,}+:APA91[\w-]{8,}", REDACTED),
        ("sg. akia aiza", r"\bSG\.[\w-]{8,200}\.[\w-]{8,}|\bAKIA[0-9A-Z]{12,}|\bAIza[\w-]{30,}", REDACTED),
        ("@", rf"(?<!{_LOCAL})({_LOCAL}){_LOCAL}*+@((?:[\w-]+\.)*[\w-]+|\[[0-9a-f.:]+\])", r"\1***@\2"),
    )
)
_PHONE = re.compile(r"(?<![\w+])\+[1-9](?:[ ().-]{0,2}[0-9]){6,14}(?![0-9])")
# Identifiers come first in the alternation, so that digits inside an identifier are not taken for a card number.
_CARD = re.compile(
    r"(?P<uuid>\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b)"
    r"|(?<![0-9A-Za-z.])[2-6](?:[ -]?[0-9]){12,18}(?![0-9A-Za-z])",
    re.IGNORECASE,
)
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def escape_control(text: str, *, keep: str = "") -> str:
    """Escape control and direction characters, so that one line stays one line on any screen."""
    return _UNPRINTABLE.sub(lambda found: found[0] if found[0] in keep else f"\\u{ord(found[0]):04x}", text)


def escaped(line: dict[str, Any]) -> dict[str, Any]:
    """The line for a terminal: only a traceback keeps its line breaks."""
    return {
        name: escape_control(value, keep="\n\t" if name == "exception" else "") if isinstance(value, str) else value
        for name, value in line.items()
    }


def traceback_text(error: BaseException | None) -> str | None:
    """The end of the traceback, which has the reason."""
    return None if error is None else "".join(traceback.format_exception(error))[-12_000:]


def encode(line: dict[str, Any]) -> str:
    """One JSON object on one line, for any values."""
    try:
        text = msgspec.json.encode(line).decode()
    except (TypeError, ValueError, OverflowError):
        return json.dumps(line, default=repr)
    return text if text.isascii() and "\x7f" not in text else escape_control(text)


class Throttle:
    """Lets a burst of equal lines through per window and counts the rest, for a bounded number of keys."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._windows: dict[str, tuple[float, int]] = {}

    def admit(self, key: str) -> int | None:
        """How many lines were left out before this one, or None when this one is left out too."""
        now = self._monotonic()
        began, count = self._windows.get(key, (now, 0))
        if count and now < began + _WINDOW_SECONDS:
            self._windows[key] = (began, count + 1)
            return 0 if count < _BURST else None
        self._windows.pop(key, None)
        if len(self._windows) >= _MAX_KEYS:
            del self._windows[next(iter(self._windows))]
        self._windows[key] = (now, 1)
        return max(0, count - _BURST)


class Redaction:
    """Redacts by name, by pattern and by value; `secrets` are the secret values of the settings."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = tuple(sorted({one for one in secrets if len(one) >= _SHORTEST_SECRET}, key=len, reverse=True))
        self._rules: dict[str, str | None] = {}
        self._clean: set[str] = set()

    def fields(self, fields: dict[str, Any], *, debug: bool = False) -> dict[str, Any]:
        """The fields as redacted JSON values; message contents are kept only at debug level."""
        return {name: self._named(name, value, "content" if debug else "", 0) for name, value in fields.items()}

    def without_secrets(self, text: str) -> str:
        """The text without the configured secrets; addresses of people stay."""
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        return text

    def text(self, text: str) -> str:
        """The text without matches of the patterns."""
        if not self._suspicious(text):
            return text
        text = self.without_secrets(text)
        lowered = text.lower()
        for words, pattern, replacement in _PATTERNS:
            if any(word in lowered for word in words):
                text = pattern.sub(replacement, text)
        if "+" in text:
            text = _PHONE.sub(_mask_phone, text)
        return _CARD.sub(_hide_card, text)

    def _suspicious(self, text: str) -> bool:
        return _TRIGGER.search(text.lower()) is not None or any(secret in text for secret in self._secrets)

    def _named(self, name: str, value: object, shown: str, depth: int) -> object:
        rule = self._rule(name)
        if rule is not None and rule != shown:
            return _hidden(rule, value)
        if type(value) is str:
            return self._remembered(name, value)
        if value is None or type(value) is float or (type(value) is int and _ordinary(name, value)):
            return value
        return self._plain(value, shown, depth)

    def _rule(self, name: str) -> str | None:
        try:
            return self._rules[name]
        except KeyError:
            pass
        rule = _rule_for(re.sub(r"[^a-z0-9]", "", name.lower()))
        if rule is None and self.text(name) != name:
            rule = "secret"
        if len(self._rules) < _MAX_REMEMBERED:
            self._rules[name] = rule
        return rule

    def _remembered(self, name: str, text: str) -> str:
        """Cache clean words, which repeat from line to line; ids do not repeat and are not cached."""
        if text in self._clean:
            return text
        short = text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + _CUT
        clean = self.text(short)
        if clean == text and len(text) <= _MAX_REMEMBERED_LENGTH and not name.endswith(("_id", "_key")):
            if len(self._clean) >= _MAX_REMEMBERED:
                self._clean.clear()
            self._clean.add(text)
        return clean

    def _plain(self, value: object, shown: str, depth: int) -> object:  # noqa: PLR0911 - one way out per kind of value
        if depth >= _MAX_DEPTH:
            return _CUT
        match value:
            case None | bool() | float():
                return value
            case Enum():
                return self._plain(value.value, shown, depth)
            case int():
                return value if _ordinary("", value) else self._number(value)
            case str():
                return self._remembered("", str(value))
            case bytes() | bytearray() | memoryview():
                return self._remembered("", bytes(value).decode("utf-8", "backslashreplace"))
            case msgspec.Struct():
                return self._plain(msgspec.structs.asdict(value), shown, depth)
            case dict():
                pairs = ((_name(key), inner) for key, inner in list(value.items())[:_MAX_ITEMS])
                return {self.text(key): self._named(key, inner, shown, depth + 1) for key, inner in pairs}
            case list() | tuple() | set() | frozenset():
                return list(self._listed(value, shown, depth))
            case _:
                return self._remembered("", _spelled(value))

    def _listed(self, values: Iterable[object], shown: str, depth: int) -> Iterator[object]:
        for position, value in enumerate(values):
            if position == _MAX_ITEMS:
                yield _CUT
                return
            match value:
                # Headers may be pairs; the first half of a pair is a name.
                case (str() | bytes() as name, inner) if self._rule(_name(name)) is not None:
                    yield [_name(name), self._named(_name(name), inner, shown, depth + 1)]
                case _:
                    yield self._plain(value, shown, depth + 1)

    def _number(self, value: int) -> int | str:
        try:
            text = str(value)
        except ValueError:
            return _CUT
        clean = self.text(text)
        return value if clean == text and abs(value) < 2**63 else clean


def _rule_for(name: str) -> str | None:
    if name in _SECRET_NAMES or name.endswith(_SECRET_ENDINGS) or name.startswith("xhubsignature"):
        return "secret"
    if name.endswith("accountsid"):
        return "partial"
    if name.endswith(_PHONE_NAMES):
        return "phone"
    return "content" if name in _CONTENT_NAMES else None


def _ordinary(name: str, value: int) -> bool:
    """Whether the digits are too short for a card number, or are a time."""
    return -(10**12) < value < 10**12 or (name.endswith(("_ms", "_nano")) and abs(value) < 2**63)


def _hidden(rule: str, value: object) -> object:
    if value is None or value == "" or type(value) is bool:
        return value
    text = str(value) if isinstance(value, str | int) else ""
    if rule == "partial" and len(text) >= _LONG_SID:
        return f"{text[:2]}***{text[-4:]}"
    if rule == "phone" and text:
        return _mask_digits(text)
    return CONTENT if rule == "content" else REDACTED


def _name(key: object) -> str:
    return key.decode("utf-8", "backslashreplace") if isinstance(key, bytes) else str(key)


def _spelled(value: object) -> str:
    try:
        return str(value) if isinstance(value, BaseException) else repr(value)
    except Exception:  # noqa: BLE001 - a broken repr must not cost the line
        return f"<{type(value).__name__}>"


def _mask_phone(found: re.Match[str]) -> str:
    return _mask_digits(found[0])


def _mask_digits(text: str) -> str:
    digits = re.sub(r"[^0-9]", "", text)
    plus = "+" if text.lstrip().startswith("+") else ""
    # For a short number, four digits at the start and two at the end would be nearly all of it.
    return f"{plus}{digits[:4]}*****{digits[-2:]}" if len(digits) >= _LONG_NUMBER else f"{plus}{digits[:2]}*****"


def _hide_card(found: re.Match[str]) -> str:
    if found["uuid"]:
        return found[0]
    # The match may include digits after the card number, so check the number up to each gap.
    ends = [gap.start() for gap in re.finditer("[ -]|$", found[0])]
    return REDACTED if any(_is_card(re.sub("[ -]", "", found[0][:end])) for end in ends) else found[0]


def _is_card(digits: str) -> bool:
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return len(digits) >= _SHORTEST_CARD and (sum(map(int, digits[-1::-2])) + sum(doubled)) % 10 == 0
