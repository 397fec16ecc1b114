"""The listo blueprint's templates from outside: versions over HTTP, languages, and what a missing one does."""

import itertools
import threading
from typing import Any

import pytest

from tests.support.client import Reply
from tests.support.listo_stand import SECRET, Listo, shared_fixture
from tests.support.listo_templates import ACME, ADMIN, OTHER, PATH, USER, call, count, post, text

listo = shared_fixture(JWT_SECRET_KEY=SECRET)

NOBODY = "00000000-0000-7000-8000-000000000000"
_numbers = itertools.count()


@pytest.fixture
def key() -> str:
    return f"key_{next(_numbers)}"


@pytest.mark.req("S2-108")
def test_a_template_is_made_shown_changed_and_switched_off(listo: Listo, key: str) -> None:
    made = post(listo, key, subjectTemplate="For {{name}}", name="Greeting", description="Says hi.")
    assert made.status == 201
    assert (made.body["version"], made.body["isActive"], made.body["locale"]) == (1, True, "en-US")
    assert made.body["variables"] == ["name"]
    path = f"{PATH}/{made.body['id']}"
    assert made.headers["location"] == f"{path}?version=1"
    assert call(listo, "GET", path).body == made.body
    assert text(listo, key) == "Hi Ada"

    put = call(listo, "PUT", path, {"bodyTemplate": "Hello {{name}}"})
    assert (put.status, put.body["version"], put.body["id"]) == (200, 2, made.body["id"])
    assert (put.body["subjectTemplate"], put.body["name"]) == ("For {{name}}", "Greeting")
    assert call(listo, "GET", path).body == put.body
    assert call(listo, "GET", f"{path}?version=1").body == made.body
    assert text(listo, key) == "Hello Ada"

    gone = call(listo, "DELETE", path)
    assert (gone.status, gone.body) == (204, b"")
    assert "content-length" not in gone.headers
    assert listo.send(key, "email", headers=ADMIN).status == 404
    for method, where, body in (
        ("GET", path, None),
        ("GET", f"{path}?version=1", None),
        ("GET", f"{path}/versions", None),
        ("PUT", path, {}),
        ("DELETE", path, None),
        ("POST", f"{path}/publish", {"version": 1}),
        ("POST", f"{PATH}/render", {"templateId": made.body["id"]}),
    ):
        assert call(listo, method, where, body).status == 404, (method, where)
    assert [one["isActive"] for one in call(listo, "GET", f"{PATH}?templateKey={key}").body["items"]] == [False]
    again = post(listo, key, bodyTemplate="Back, {{name}}")
    assert (again.status, again.body["version"], again.body["id"]) == (201, 3, made.body["id"])
    kept = call(listo, "GET", f"{path}/versions").body["items"]
    assert [(one["version"], one["isActive"]) for one in kept] == [(3, True), (2, False), (1, False)]
    assert text(listo, key) == "Back, Ada"


@pytest.mark.req("S2-108", "S2-109")
def test_the_same_again_is_the_next_version_and_a_number_can_be_insisted_on(listo: Listo, key: str) -> None:
    first = post(listo, key)
    second = post(listo, key, bodyTemplate="Second")
    assert (second.status, second.body["version"], second.body["id"]) == (201, 2, first.body["id"])
    taken = post(listo, key, version=2)
    assert (taken.status, taken.body["error"]["code"]) == (409, "CONFLICT")
    assert post(listo, key, version=3).status == 201
    path = f"{PATH}/{first.body['id']}"
    late = call(listo, "PUT", path, {"bodyTemplate": "late", "version": 1})
    assert (late.status, late.body["error"]["code"]) == (409, "CONFLICT")
    assert call(listo, "PUT", path, {"bodyTemplate": "on time", "version": 3}).body["version"] == 4


@pytest.mark.req("S2-109")
def test_many_writers_at_once_get_each_a_version(listo: Listo, key: str) -> None:
    replies: list[Reply] = []
    threads = [threading.Thread(target=lambda: replies.append(post(listo, key))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(reply.body["version"] for reply in replies) == list(range(1, 9))


@pytest.mark.req("S2-108")
def test_an_old_version_is_published_again(listo: Listo, key: str) -> None:
    path = f"{PATH}/{post(listo, key).body['id']}"
    post(listo, key, bodyTemplate="Broken {{name}}")
    assert text(listo, key) == "Broken Ada"
    back = call(listo, "POST", f"{path}/publish", {"version": 1})
    assert (back.status, back.body["version"], back.body["bodyTemplate"]) == (201, 3, "Hi {{name}}")
    assert text(listo, key) == "Hi Ada"
    assert call(listo, "POST", f"{path}/publish", {"version": 9}).status == 404


@pytest.mark.req("S2-108")
def test_a_draft_is_not_used_and_a_change_can_switch_off(listo: Listo, key: str) -> None:
    path = f"{PATH}/{post(listo, key).body['id']}"
    draft = post(listo, key, bodyTemplate="Not yet", isActive=False)
    assert (draft.body["version"], draft.body["isActive"]) == (2, False)
    assert text(listo, key) == "Hi Ada"
    assert call(listo, "GET", path).body["version"] == 1
    off = call(listo, "PUT", path, {"isActive": False})
    assert (off.status, off.body["version"], off.body["isActive"]) == (200, 3, False)
    assert listo.send(key, "email", headers=ADMIN).status == 404


@pytest.mark.req("S2-108")
def test_the_list_is_filtered_and_paged(listo: Listo, key: str) -> None:
    for locale, channel in (("en-US", "email"), ("es-MX", "email"), ("en-US", "sms")):
        post(listo, key, locale=locale, channel=channel)
    off = post(listo, key, locale="fr")
    call(listo, "DELETE", f"{PATH}/{off.body['id']}")

    def listed(query: str) -> list[str]:
        found = call(listo, "GET", f"{PATH}?templateKey={key}&{query}").body
        assert found["totalCount"] >= len(found["items"])
        return [f"{one['channel']}/{one['locale']}" for one in found["items"]]

    assert listed("") == ["email/en-US", "email/es-MX", "email/fr", "sms/en-US"]
    assert listed("isActive=true&channel=email") == ["email/en-US", "email/es-MX"]
    assert listed("isActive=false") == ["email/fr"]
    assert listed("locale=es-MX") == ["email/es-MX"]
    page = call(listo, "GET", f"{PATH}?templateKey={key}&pageNumber=2&pageSize=3").body
    assert (page["totalCount"], page["pageNumber"], page["pageSize"], page["totalPages"]) == (4, 2, 3, 2)
    assert len(page["items"]) == 1
    for bad in ("pageSize=101", "pageSize=0", "isActive=1", "channel=fax", "unknown=1"):
        assert call(listo, "GET", f"{PATH}?{bad}").status == 400, bad


@pytest.mark.req("S2-109")
@pytest.mark.parametrize(
    ("fields", "culprit"),
    [
        ({"templateKey": "Upper"}, "templateKey"),
        ({"templateKey": "a/b"}, "templateKey"),
        ({"templateKey": "k" * 201}, "templateKey"),
        ({"templateKey": None}, "templateKey"),
        ({"channel": "fax"}, "channel"),
        ({"subjectTemplate": "s" * 501}, "subjectTemplate"),
        ({"subjectTemplate": "two\nlines"}, "subjectTemplate"),
        ({"bodyTemplate": "b" * 50_001}, "bodyTemplate"),
        ({"bodyTemplate": ""}, "bodyTemplate"),
        ({"bodyTemplate": None}, "bodyTemplate"),
        ({"bodyTemplate": "{% if x %}"}, "bodyTemplate"),
        ({"bodyTemplate": "{{7*7}}", "engine": "simple"}, "bodyTemplate"),
        ({"bodyTemplate": "{{7*}}"}, "bodyTemplate"),
        ({"bodyTemplate": "{{7*7}}", "engine": "erb"}, "engine"),
        ({"engine": "simple", "mjml": "<mjml></mjml>"}, "engine"),
        ({"mjml": "<mjml><mj-body>"}, "mjml"),
        ({"htmlTemplate": "<p>", "mjml": "<mjml></mjml>"}, "mjml"),
        ({"kind": "letter"}, "kind"),
        ({"layout": "nowhere", "htmlTemplate": "x"}, "htmlTemplate"),
        ({"bodyTemplate": "Hi {{name}, welcome"}, "bodyTemplate"),
        ({"subjectTemplate": "{{__class__.__mro__[0]}}"}, "subjectTemplate"),
        ({"locale": "en_US"}, "locale"),
        ({"locale": "english"}, "locale"),
        ({"locale": "EN"}, "locale"),
        ({"defaultVariables": []}, "defaultVariables"),
        ({"isActive": "yes"}, "isActive"),
        ({"version": 0}, "version"),
        ({"channel": "sms", "htmlTemplate": "<p>"}, "htmlTemplate"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_what_is_not_a_template_is_refused(listo: Listo, key: str, fields: dict[str, Any], culprit: str) -> None:
    reply = post(listo, key, **fields)
    assert (reply.status, reply.body["error"]["code"]) == (400, "VALIDATION_ERROR")
    assert culprit in str(reply.body["error"]["details"])


@pytest.mark.req("S2-109")
def test_the_longest_of_everything_is_kept(listo: Listo) -> None:
    made = post(listo, "k" * 200, bodyTemplate="b" * 50_000, subjectTemplate="s" * 500, locale="fr")
    assert made.status == 201
    assert len(call(listo, "GET", f"{PATH}/{made.body['id']}").body["bodyTemplate"]) == 50_000


@pytest.mark.req("S2-108")
def test_changing_takes_an_administrator(listo: Listo, key: str) -> None:
    made = post(listo, key, ACME)
    path = f"{PATH}/{made.body['id']}"
    calls = [
        ("GET", PATH, None),
        ("POST", PATH, {"templateKey": key, "channel": "email", "bodyTemplate": "x"}),
        ("GET", path, None),
        ("PUT", path, {"bodyTemplate": "x"}),
        ("DELETE", path, None),
        ("POST", f"{path}/publish", {"version": 1}),
        ("GET", f"{path}/versions", None),
        ("POST", f"{PATH}/render", {"templateKey": key}),
    ]
    for method, where, body in calls:
        assert call(listo, method, where, body, USER).status == 403, (method, where)
        assert call(listo, method, where, body, {}).status == 401, (method, where)
    for method, where, body in calls:
        if made.body["id"] in where:
            elsewhere = where.replace(made.body["id"], NOBODY)
            assert call(listo, method, elsewhere, body).status == 404, (method, where)
            assert call(listo, method, where, body, OTHER).status == 404, (method, where)
    assert call(listo, "GET", path, headers=ACME).body == made.body


@pytest.mark.req("S2-117")
def test_a_tenants_own_goes_before_everybodys(listo: Listo, key: str) -> None:
    everybodys = post(listo, key)
    own = post(listo, key, ACME, bodyTemplate="Acme says hi, {{name}}")
    assert (everybodys.body["tenantId"], own.body["tenantId"], own.body["version"]) == (None, "acme", 1)
    assert text(listo, key) == "Hi Ada"
    assert text(listo, key, OTHER) == "Hi Ada"
    assert text(listo, key, ACME) == "Acme says hi, Ada"
    foreign = call(listo, "PUT", f"{PATH}/{everybodys.body['id']}", {"bodyTemplate": "x"}, ACME)
    assert (foreign.status, foreign.body["error"]["code"]) == (403, "FORBIDDEN")
    assert post(listo, key, ACME, tenantId="other").status == 403
    assert post(listo, key, tenantId="other", bodyTemplate="Other").body["tenantId"] == "other"
    seen = call(listo, "GET", f"{PATH}?templateKey={key}", headers=ACME).body["items"]
    assert [one["tenantId"] for one in seen] == [None, "acme"]
    call(listo, "DELETE", f"{PATH}/{own.body['id']}", headers=ACME)
    assert text(listo, key, ACME) == "Hi Ada"


@pytest.mark.req("S2-108", "S2-104")
def test_rendering_without_sending(listo: Listo, key: str) -> None:
    def render(**body: Any) -> Reply:
        return call(listo, "POST", f"{PATH}/render", body)

    inline = render(bodyTemplate="Hi {{name}}", htmlTemplate="<b>{{name}}</b>", data={"name": "<Ada>"})
    assert (inline.status, inline.body["body"], inline.body["html"]) == (200, "Hi <Ada>", "<b>&lt;Ada&gt;</b>")
    made = post(listo, key, subjectTemplate="{{n}}", defaultVariables={"name": "you"})
    by_key = render(templateKey=key, variables={"n": 1})
    assert (by_key.body["subject"], by_key.body["body"], by_key.body["version"]) == ("1", "Hi you", 1)
    assert render(templateId=made.body["id"], data={"n": 2}).body["subject"] == "2"
    missing = render(bodyTemplate="{{b}} {{a.c}}", engine="simple")
    assert (missing.status, missing.body["error"]["code"]) == (400, "TEMPLATE_RENDER_ERROR")
    assert missing.body["error"]["message"] == "missing template variables: a.c, b"
    missing = render(bodyTemplate="{{b}} {{a.c}}")
    assert missing.body["error"]["message"].startswith("missing template variables: a.c, b (")
    assert [missing.body[name] for name in ("template", "line", "column")] == ["inline", 1, 1]
    assert render(templateKey="nowhere").body["error"]["code"] == "TEMPLATE_NOT_FOUND"
    assert render(templateKey="order_confirmed", data={}).body["error"]["code"] == "CHANNEL_REQUIRED"
    for bad in ({}, {"bodyTemplate": "x", "templateKey": key}, {"bodyTemplate": "{{7*}}"}, {"version": 1}):
        assert render(**bad).body["error"]["code"] == "VALIDATION_ERROR", bad


@pytest.mark.req("S2-99", "S2-104")
def test_a_missing_variable_fails_the_request_and_nothing_is_queued(listo: Listo, key: str) -> None:
    post(listo, key, defaultVariables={"shop": {"name": "Listo"}}, bodyTemplate="{{name}} {{shop.name}} {{x.y}}")
    before = count(listo)
    reply = listo.send(key, "email", data={"name": "Ada", "shop": {"id": 1}}, headers=ADMIN)
    assert (reply.status, reply.body["error"]["code"]) == (400, "TEMPLATE_RENDER_ERROR")
    assert reply.body["error"]["message"] == f"missing template variables: x.y ({key} text, line 1, column 24)"
    assert count(listo) == before
    assert text(listo, key, data={"name": "Ada", "x": {"y": 7}}) == "Ada Listo 7"
    assert text(listo, key, data={"name": "Ada", "x": {"y": 7}, "shop": {"name": "Mine"}}) == "Ada Mine 7"


@pytest.mark.req("S2-106", "S2-33", "S2-99")
def test_what_was_rendered_stays_whatever_becomes_of_the_template(listo: Listo, key: str) -> None:
    made = post(listo, key, subjectTemplate="For {{name}}", htmlTemplate="<p>{{name}}</p>")
    notification_id = listo.sent(
        key, "email", data={"name": "Ada & Co"}, scheduledFor="2999-01-01T00:00:00Z", headers=ADMIN
    )
    call(listo, "DELETE", f"{PATH}/{made.body['id']}")
    message = listo.story(notification_id, ADMIN)["routes"][0]["message"]
    assert message == {"text": "Hi Ada & Co", "subject": "For Ada & Co", "html": "<p>Ada &amp; Co</p>"}


@pytest.mark.req("P-1129")
def test_a_change_keeps_what_is_in_use_and_not_what_somebody_drafts(listo: Listo, key: str) -> None:
    path = f"{PATH}/{post(listo, key, subjectTemplate='Old').body['id']}"
    post(listo, key, bodyTemplate="Not yet", subjectTemplate="Not yet", isActive=False)
    named = call(listo, "PUT", path, {"name": "For guests"})
    assert (named.body["version"], named.body["bodyTemplate"]) == (3, "Hi {{name}}")
    assert text(listo, key) == "Hi Ada"
    draft = post(listo, key, bodyTemplate="Soon {{name}}", isActive=False)
    # Who names the draft goes on from it.
    done = call(listo, "PUT", path, {"version": draft.body["version"], "subjectTemplate": "New"})
    assert (done.body["bodyTemplate"], done.body["subjectTemplate"]) == ("Soon {{name}}", "New")


@pytest.mark.req("P-1129")
def test_a_template_whose_layout_is_gone_can_be_switched_off(listo: Listo, key: str) -> None:
    frame = f"{key}.frame"
    layout = post(listo, frame, kind="layout", engine="jinja", bodyTemplate="{% block content %}{% endblock %}!")
    path = f"{PATH}/{post(listo, key, engine='jinja', layout=frame).body['id']}"
    assert text(listo, key) == "Hi Ada!"
    call(listo, "DELETE", f"{PATH}/{layout.body['id']}")
    assert call(listo, "PUT", path, {"name": "Broken"}).status == 400
    off = call(listo, "PUT", path, {"isActive": False})
    assert (off.status, off.body["isActive"]) == (200, False)
    assert listo.send(key, "email", headers=ADMIN).status == 404
