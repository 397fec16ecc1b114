"""The one decision about consent, and the names of people."""

import msgspec
import pytest

from carillon.compose.from_settings import categories
from carillon.config.reading import load
from carillon.config.settings import CategorySettings
from carillon.domain.consent import Categories, Category, Wishes, bare_address, person_of, refusal
from carillon.domain.errors import ConfigurationError

NEWS = Category(name="news", channels={"sms": False})
CODES = Category(name="codes", required=True)


@pytest.mark.req("P-201")
@pytest.mark.parametrize(
    ("category", "channel", "chosen", "off", "goes"),
    [
        (NEWS, "email", {}, (), True),
        (NEWS, "sms", {}, (), False),
        (NEWS, "sms", {"news": {"sms": True}}, (), True),
        (NEWS, "email", {"news": {"email": False}}, (), False),
        (NEWS, "email", {"news": {"sms": False}}, (), True),
        (NEWS, "email", {"other": {"email": False}}, (), True),
        # The channel as a whole counts only where the category has no choice.
        (NEWS, "email", {}, ("email",), False),
        (NEWS, "email", {"news": {"email": True}}, ("email",), True),
        (NEWS, "push", {}, ("email",), True),
        (CODES, "email", {"codes": {"email": False}}, ("email",), True),
    ],
)
def test_the_decision(
    category: Category, channel: str, chosen: dict[str, dict[str, bool]], off: tuple[str, ...], *, goes: bool
) -> None:
    assert (refusal(category, channel, chosen, off) is None) is goes
    wishes = Wishes(dict.fromkeys(off, False), chosen)
    assert (wishes.refusal(category, channel) is None) is goes


def test_a_tenants_set_adds_and_replaces() -> None:
    own = {"news": Category(name="news", required=True), "rides": Category(name="rides")}
    known = Categories(shared={"news": NEWS, "codes": CODES}, tenants={"acme": own})
    assert set(known.of("acme")) == {"news", "codes", "rides"}
    assert set(known.of("other")) == set(known.of(None)) == {"news", "codes"}
    found = known.find("news", "acme")
    assert found is not None
    assert found.required
    assert known.find("news", None) is NEWS
    assert known.find("rides", "other") is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"BIG NEWS": {}}, "a name has a-z"),
        ({"news": {"channels": {"smoke": False}}}, "the channels are email"),
        ({"news": {"required": True, "channels": {"sms": False}}}, "cannot be off by default"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, dict[str, object]], said: str) -> None:
    plain = load("local", environ={})
    given = msgspec.convert(settings, dict[str, CategorySettings])
    with pytest.raises(ConfigurationError, match=said):
        categories(msgspec.structs.replace(plain, categories=given))


def test_what_people_read() -> None:
    spoken = Category(name="big-news", titles={"de": "Neues", "en": "News"}, texts={"en": "All of it."})
    assert [spoken.title(tag) for tag in ("de-AT", "de", "fr", "en-GB")] == ["Neues", "Neues", "News", "News"]
    assert (spoken.text("de"), Category(name="big-news").title("de")) == ("All of it.", "Big news")


def test_people_with_and_without_an_id() -> None:
    assert person_of("user:ada") == "ada"
    assert person_of("email:ada@example.org") == "email:ada@example.org"
    assert bare_address("email:ada@example.org") == ("email", "ada@example.org")
    assert bare_address("phone:+491") == ("phone", "+491")
    assert bare_address("ada") == (None, "ada")
    assert bare_address("auth0:ada") == (None, "auth0:ada")
