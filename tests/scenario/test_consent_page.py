"""A person's page and one click from outside: who may open it, what GET and POST do, and what mails say."""

import itertools
import json
import re
from typing import Any
from urllib.parse import urlencode, urljoin

import pytest

from carillon.links import Link, Links
from tests.support.client import Reply
from tests.support.listo_stand import DOWN, SECRET, Listo, shared_fixture, token
from tests.support.sources import ROOT

KEY, OLD_KEY = "a key of this test, thirty-two characters", "another key of this test, thirty-two letters"
URL = "https://messages.example.org"
SETTINGS = f"""
[consent]
keys = ["{KEY}", "{OLD_KEY}"]
url = "{URL}"
[categories.security]
required = true
[categories.news]
channels = {{ sms = false }}
titles = {{ en = "News", de = "Neues", es = "Novedades" }}
[categories.orders]
[tenant.acme.page]
name = "Acme <Inc>"
accent = "#aa3300"
logo = "https://acme.example/logo.png"
[tenant.acme]
default_locale = "es"
"""
listo = shared_fixture(SETTINGS, JWT_SECRET_KEY=SECRET)
ADMIN = token("root", role="admin")
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
INBOX = ROOT / "src/carillon/live/static/words.js"
ONE_CLICK = "List-Unsubscribe=One-Click"
_numbers = itertools.count()


@pytest.fixture
def user() -> str:
    return f"reader-{next(_numbers)}"


def links(key: str = KEY) -> Links:
    return Links([key], URL, link_seconds=600, unsubscribe_seconds=600)


def path_of(person: str, *, tenant: str = "", until: int = 4_000_000_000, key: str = KEY, leave: str = "") -> str:
    link = Link(tenant, person, until, leave, "email" if leave else "")
    return f"/u/{links(key).write(link)}"


def get(listo: Listo, path: str, **headers: str) -> Reply:
    return listo.client.call("GET", path, None, headers)


def post(listo: Listo, path: str, body: str, **headers: str) -> Reply:
    return listo.client.call("POST", path, body.encode(), FORM | headers)


def chosen(listo: Listo, user: str, tenant: str | None = None) -> Any:
    more = "" if tenant is None else f"?tenantId={tenant}"
    return listo.client.call("GET", f"/api/v1/preferences/user/{user}{more}", None, ADMIN).body


def text(reply: Reply) -> str:
    return bytes(reply.body).decode()


@pytest.mark.req("P-943")
@pytest.mark.parametrize("public", ["https://example.org", "https://example.org/messages"])
def test_a_saved_page_leads_back_to_itself_behind_every_proxy(listo: Listo, user: str, public: str) -> None:
    path = path_of(user)
    saved = post(listo, path, "do=nothing")
    assert saved.status == 303
    assert urljoin(f"{public}{path}", saved.headers["location"]) == f"{public}{path}?saved=1"
    assert urljoin(f"{public}{path}?saved=1", saved.headers["location"]) == f"{public}{path}?saved=1"


@pytest.mark.req("P-210")
def test_the_link_of_the_api_opens_the_page(listo: Listo, user: str) -> None:
    made = listo.client.call("POST", f"/api/v1/people/{user}/preference-link", None, ADMIN)
    assert made.status == 201
    assert made.body["url"].startswith(f"{URL}/u/")
    page = get(listo, made.body["url"].removeprefix(URL))
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    # Nobody makes a link to another person's page.
    refused = listo.client.call("POST", f"/api/v1/people/{user}/preference-link", None, token("eve"))
    assert refused.status == 403
    assert user not in made.body["url"]


@pytest.mark.req("P-210")
def test_the_page_keeps_its_address_to_itself(listo: Listo, user: str) -> None:
    page = get(listo, path_of(user))
    assert page.headers["referrer-policy"] == "no-referrer"
    assert page.headers["x-robots-tag"] == "noindex, nofollow"
    assert page.headers["cache-control"] == "no-store"
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "<script" not in text(page)


@pytest.mark.req("P-211")
def test_what_is_damaged_over_or_not_ours_looks_the_same(listo: Listo, user: str) -> None:
    good = path_of(user)
    wrong = [good[:-2], f"{good}AA", "/u/x", path_of(user, until=1), path_of(user, key="k" * 40), "/u/" + "A" * 1100]
    pages = [get(listo, path) for path in wrong]
    assert {page.status for page in pages} == {404}
    assert len({text(page) for page in pages}) == 1
    assert "does not work any more" in text(pages[0])
    assert {post(listo, path, ONE_CLICK).status for path in wrong} == {404}
    # A key that is no longer the first one still opens its links.
    assert get(listo, path_of(user, key=OLD_KEY)).status == 200


@pytest.mark.req("P-211")
def test_scanners_change_nothing(listo: Listo, user: str) -> None:
    path = path_of(user, leave="news")
    before = chosen(listo, user)
    for method in ("GET", "HEAD", "GET"):
        assert listo.client.call(method, path, None, {}).status == 200
    assert get(listo, f"{path}?List-Unsubscribe=One-Click&do=leave").status == 200
    assert chosen(listo, user) == before


@pytest.mark.req("P-212")
@pytest.mark.parametrize("kind", ["form", "parts"])
def test_one_click_leaves_the_category_on_this_channel_only(listo: Listo, user: str, kind: str) -> None:
    path = path_of(user, leave="news")
    if kind == "form":
        reply = post(listo, path, ONE_CLICK)
    else:
        part = '--b\r\nContent-Disposition: form-data; name="List-Unsubscribe"\r\n\r\nOne-Click\r\n--b--\r\n'
        reply = post(listo, path, part, **{"Content-Type": "multipart/form-data; boundary=b"})
    assert reply.status == 200
    held = chosen(listo, user)["categories"]
    assert (held["news"]["email"], held["news"]["push"], held["orders"]["email"]) == (False, True, True)
    assert post(listo, path, ONE_CLICK).status == 200
    sent = listo.send("order_confirmed", "email", headers=ADMIN, userId=user, category="news")
    assert (sent.body["status"], sent.body["skipped"][0]["reason"]) == ("skipped", "category")


@pytest.mark.req("P-212")
def test_a_required_category_is_not_left(listo: Listo, user: str) -> None:
    before = chosen(listo, user)
    assert post(listo, path_of(user, leave="security"), ONE_CLICK).status == 200
    assert post(listo, path_of(user), ONE_CLICK).status == 200
    assert chosen(listo, user)["categories"] == before["categories"]


@pytest.mark.req("P-210")
def test_the_form_changes_what_was_changed_and_nothing_else(listo: Listo, user: str) -> None:
    shown = [("shown", f"{name}/{channel}") for name in ("news", "orders") for channel in ("email", "sms", "push")]
    wanted = [("wanted", value) for _, value in shown if value not in {"news/email", "news/sms"}]
    rest = [
        ("locale", "de"),
        ("zone", "Europe/Berlin"),
        ("from", "22:00"),
        ("to", "07:00"),
        ("day", "mon"),
        ("do", "save"),
    ]
    saved = post(listo, path_of(user), urlencode([*shown, *wanted, *rest, ("shown", "security/email")]))
    assert saved.status == 303
    held = chosen(listo, user)
    assert (held["preferredLocale"], held["timeZone"]) == ("de", "Europe/Berlin")
    assert (held["quietHours"]["startTime"], held["quietHours"]["days"]) == ("22:00", ["mon"])
    assert held["categories"]["security"]["email"] is True
    (row,) = [row for row in listo.rows("SELECT user_id, categories_json FROM preferences") if row["user_id"] == user]
    # What the person did not touch follows the default if that changes.
    assert json.loads(row["categories_json"]) == {"news": {"email": False}}
    page = text(get(listo, f"{path_of(user)}?saved=1"))
    assert 'lang="de"' in page
    assert "Ihre Auswahl ist gespeichert." in page
    nothing = post(listo, path_of(user), "do=nothing")
    assert nothing.status == 303
    held = chosen(listo, user)["categories"]
    assert not any(held["orders"][channel] for channel in ("email", "sms", "push", "inApp"))
    assert held["security"]["email"] is True


@pytest.mark.req("P-210")
@pytest.mark.parametrize("body", ["zone=Mars/Base", "locale=xx-nonsense-1", "from=25:00&to=07:00", "from=22:00&to="])
def test_a_form_that_no_browser_sends_changes_nothing(listo: Listo, user: str, body: str) -> None:
    reply = post(listo, path_of(user), f"do=save&shown=news/email&{body}")
    assert reply.status == 400
    assert 'class="note bad"' in text(reply)
    assert chosen(listo, user)["updatedAt"] is None


@pytest.mark.req("P-210")
def test_a_page_of_another_site_cannot_post_the_form(listo: Listo, user: str) -> None:
    assert post(listo, path_of(user), "do=nothing", **{"Sec-Fetch-Site": "cross-site"}).status == 403
    assert chosen(listo, user)["updatedAt"] is None


@pytest.mark.req("P-213")
def test_a_tenant_has_its_own_looks_language_and_people(listo: Listo, user: str) -> None:
    path = path_of(user, tenant="acme")
    page = get(listo, path)
    assert "Acme &lt;Inc&gt;" in text(page)
    assert "#aa3300" in text(page)
    assert "img-src https://acme.example" in page.headers["content-security-policy"]
    assert 'lang="es"' in text(page)
    assert 'lang="de"' in text(get(listo, path, **{"Accept-Language": "it, de;q=0.8"}))
    assert post(listo, path, "do=nothing").status == 303
    assert chosen(listo, user, "acme")["categories"]["news"]["email"] is False
    assert chosen(listo, user)["categories"]["news"]["email"] is True


@pytest.mark.req("P-1052", "P-213")
def test_the_page_speaks_every_language_that_the_inbox_speaks(listo: Listo, user: str) -> None:
    spoken = re.findall(r"^  ([a-z]{2}): \{$", INBOX.read_text(), re.MULTILINE)
    titles: dict[str, str] = {}
    for language in spoken:
        page = text(get(listo, path_of(user), **{"Accept-Language": language}))
        assert f'lang="{language}"' in page
        titles[language] = page[page.index("<h1") : page.index("</h1>")]
    assert len(spoken) >= 7
    assert len(set(titles.values())) == len(spoken), "each in its own words"


@pytest.mark.req("P-214")
def test_every_mail_of_a_category_that_can_be_left_says_how(listo: Listo, user: str) -> None:
    for category in ("news", "security", None):
        mark = f"{user}-{category}"
        sent = listo.sent("order_confirmed", "email", headers=ADMIN, userId=user, category=category, correlationId=mark)
        listo.until(sent, "delivered", headers=ADMIN)
        (call,) = listo.calls("SendGrid", sent)
        headers = json.loads(call["body"])["headers"]
        assert ("List-Unsubscribe" in headers) is (category == "news")
        if category == "news":
            assert headers["List-Unsubscribe-Post"] == ONE_CLICK
            url = headers["List-Unsubscribe"].strip("<>")
            assert url.startswith(f"{URL}/u/")
            assert post(listo, url.removeprefix(URL), ONE_CLICK).status == 200
    assert chosen(listo, user)["categories"]["news"]["email"] is False


@pytest.mark.req("P-214")
def test_every_repeat_and_the_second_vendor_carry_the_same_link(listo: Listo, user: str) -> None:
    listo.sendgrid.answer(*[DOWN] * 10)
    sent = listo.sent("order_confirmed", "email", headers=ADMIN, userId=user, category="news")
    listo.until(sent, "delivered", headers=ADMIN)
    calls = [*listo.calls("SendGrid", sent), *listo.calls("AZURE_ACS", sent)]
    listo.up()
    assert len({call["path"].partition("?")[0] for call in calls}) == 2
    assert len({json.loads(call["body"])["headers"]["List-Unsubscribe"] for call in calls}) == 1


@pytest.mark.req("P-214")
def test_a_bare_address_can_leave_too(listo: Listo) -> None:
    address = f"bare-{next(_numbers)}@example.org"
    sent = listo.sent("order_confirmed", "email", headers=ADMIN, recipient=address, category="news")
    listo.until(sent, "delivered", headers=ADMIN)
    # An earlier test may have opened the first vendor's breaker.
    (call,) = [*listo.calls("SendGrid", sent), *listo.calls("AZURE_ACS", sent)]
    url = json.loads(call["body"])["headers"]["List-Unsubscribe"].strip("<>")
    assert post(listo, url.removeprefix(URL), ONE_CLICK).status == 200
    again = listo.send("order_confirmed", "email", headers=ADMIN, recipient=address, category="news")
    assert again.body["status"] == "skipped"
    for other in ({"category": "orders"}, {"category": None}):
        assert (
            listo.send("order_confirmed", "email", headers=ADMIN, recipient=address, **other).body["status"] == "queued"
        )
