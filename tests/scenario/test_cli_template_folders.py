"""A folder of templates beside the API and the ledger: the same is refused, found, kept and shown."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from carillon.embedded import open_embedded
from tests.support.listo_stand import SECRET, Listo, shared_fixture, token
from tests.support.template_folders import carillon, lay

listo = shared_fixture('[locale]\non_missing = "chain"\n', JWT_SECRET_KEY=SECRET)


@pytest.mark.req("P-1124")
@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"_layouts/frame/html.jinja": "<p>\n{% if x %}</p>"}, "{% if %} is not closed with {% endif %}"),
        ({"_partials/foot/text.jinja": "{{ n|nofilter }}"}, "there is no filter 'nofilter'"),
        ({"foot/de/email/text.jinja": "{{ n", "foot/de/email/template.json": '{"kind": "partial"}'}, "'{{ n' is not"),
    ],
)
def test_a_layout_or_partial_that_does_not_compile_is_not_pushed(
    tmp_path: Path, files: dict[str, str], said: str
) -> None:
    lay(tmp_path / "ours", {"note/en/email/text.jinja": "Hi", **files})
    for command in ("check", "push", "diff"):
        assert said in carillon(tmp_path, command, "ours", exit_code=2)
    assert json.loads(carillon(tmp_path, "list", "--json"))["total"] == 0


@pytest.mark.req("P-1264")
@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("_layouts/frame/text.jinja", "{% if x %}", "{% if %} is not closed with {% endif %} (frame text, line 1"),
        ("_layouts/frame/text.jinja", "{{ n|nofilter }}", "there is no filter 'nofilter' (frame text, line 1"),
        ("_partials/foot/mjml.jinja", "<p>{{ n", "'{{ n' is not closed"),
        ("_layouts/frame/html.jinja", "{{ n|nofilter }}", "there is no filter 'nofilter' (frame html, line 1"),
    ],
)
def test_what_messages_need_compiles_also_in_a_part_that_none_of_them_uses(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    """Templates of the ledger may use that part."""
    files = {
        "_layouts/frame/html.jinja": "<p>{% block content %}{% endblock %}{% include 'foot' %}</p>",
        "_partials/foot/html.jinja": "Bye",
        "note/en/email/html.jinja": "{% block content %}Hi{% endblock %}",
        "note/en/email/template.json": '{"layout": "frame"}',
    }
    lay(tmp_path / "ours", {**files, name: text})
    told = carillon(tmp_path, "check", "ours", exit_code=2)
    assert said in told
    assert told.count("carillon: ") == 1, "the message that uses it says the same"
    assert said in carillon(tmp_path, "push", "ours", exit_code=2)


@pytest.mark.req("P-1124")
def test_a_partial_may_need_the_macros_of_the_messages_that_include_it(tmp_path: Path) -> None:
    macro = "{% macro mark(x) %}*{{ x }}*{% endmacro %}"
    files = {"note/en/email/text.jinja": macro + '{% include "line" %}', "_partials/line/text.jinja": "{{ mark(1) }}"}
    lay(tmp_path / "ours", files)
    assert "0 unfit" in carillon(tmp_path, "check", "ours")
    assert "2 written" in carillon(tmp_path, "push", "ours")


@pytest.mark.req("P-1124")
def test_what_could_never_be_sent_is_unfit(tmp_path: Path) -> None:
    lay(
        tmp_path / "ours",
        {
            "a/en/email/text.tmpl": "x",
            "a/en/email/subject.tmpl": "two\nlines",
            "b/en/email/text.jinja": "x",
            "b/en/email/html.jinja": "\n",
            "c/en/email/text.jinja": "x",
            "c/en/email/subject.jinja": "{% if true %}\none line\n{% endif %}\n",
        },
    )
    for command in ("check", "push"):
        said = carillon(tmp_path, command, "ours", exit_code=1)
        assert "a/en/email: the subject must be one line of text" in said
        assert "b/en/email: html is empty" in said
        assert "c/en" not in said


@pytest.mark.req("P-1267")
@pytest.mark.parametrize(
    "subject",
    [
        "{# What lists show. #}\nOrder 7",
        "Order {{ 7 if true\n  else 8 }}",
        "{#- one\ntwo -#}\nOrder {{ 7 }}\n{# three #}",
    ],
)
def test_a_line_break_in_a_tag_is_none_of_the_subject(tmp_path: Path, subject: str) -> None:
    lay(tmp_path / "ours", {"note/en/email/text.jinja": "x", "note/en/email/subject.jinja": subject})
    assert "0 unfit" in carillon(tmp_path, "check", "ours")
    assert carillon(tmp_path, "preview", "ours", "note", "--part", "subject").strip() == "Order 7"
    assert "1 written" in carillon(tmp_path, "push", "ours")
    (tmp_path / "ours/note/en/email/subject.jinja").write_text("Order {# of #}\n{{ 7 }}")
    for command in ("check", "push"):
        assert "the subject must be one line of text" in carillon(tmp_path, command, "ours", exit_code=1)


@pytest.mark.req("P-1125")
def test_what_is_pulled_is_what_the_ledger_has(tmp_path: Path) -> None:
    settings = 'extends = "local"\n[categories.orders.titles]\nen = "Orders"\n'
    (tmp_path / "c.toml").write_text(settings)
    lay(
        tmp_path / "ours",
        {
            "_layouts/frame/html.jinja": "<p>{{ name }}{% block content %}{% endblock %}</p>",
            "_layouts/frame/sample.json": '{"name": "Ada"}',
            "_layouts/frame/template.json": '{"defaultVariables": {"name": "you"}}',
            "note/en/email/text.jinja": "Hi",
            "note/category": "orders",
        },
    )
    given = ("--config", "c.toml")
    assert "2 written" in carillon(tmp_path, "push", "ours", *given)
    carillon(tmp_path, "pull", "again", *given)
    frame = tmp_path / "again/_layouts/frame"
    assert json.loads((frame / "sample.json").read_text()) == {"name": "Ada"}
    assert json.loads((frame / "template.json").read_text()) == {"defaultVariables": {"name": "you"}}
    assert "no differences" in carillon(tmp_path, "diff", "again", *given)
    # A category that is there no more is not written into the ledger again.
    (tmp_path / "ours/note/category").unlink()
    assert "1 written" in carillon(tmp_path, "push", "ours", *given)
    carillon(tmp_path, "pull", "again", *given)
    assert not (tmp_path / "again/note/category").exists()
    assert "no differences" in carillon(tmp_path, "diff", "again", *given)


@pytest.mark.req("P-1268")
def test_a_tenants_templates_may_name_the_tenants_own_categories(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('extends = "local"\n[tenant.acme.categories.club]\n')
    lay(tmp_path / "ours", {"note/en/email/text.jinja": "Hi", "note/category": "club"})
    given = ("--config", "c.toml", "--tenant", "acme")
    assert "1 written" in carillon(tmp_path, "push", "ours", *given)
    carillon(tmp_path, "pull", "again", *given)
    assert (tmp_path / "again/note/category").read_text() == "club\n"
    assert "no differences" in carillon(tmp_path, "diff", "again", *given)
    for others in ((), ("--tenant", "globex")):
        assert "there is no category club" in carillon(tmp_path, "push", "ours", *given[:2], *others, exit_code=1)


@pytest.mark.req("P-1125")
def test_a_pull_writes_nothing_beside_its_folder(tmp_path: Path) -> None:
    lay(tmp_path / "ours", {"note/en/email/text.jinja": "Hi"})
    carillon(tmp_path, "push", "ours")
    with closing(sqlite3.connect(tmp_path / "carillon.db")) as ledger, ledger:
        # As the API stores it.
        ledger.execute("UPDATE templates SET template_key = '..'")
    assert "no folder can have the name" in carillon(tmp_path, "pull", "again", exit_code=2)
    assert not (tmp_path / "en").exists()


@pytest.mark.req("P-1126")
def test_a_preview_is_written_for_the_people_of_the_tenant(tmp_path: Path) -> None:
    tenant = '[tenant.acme]\ndefault_locale = "de-AT"\ntime_zone = "Asia/Tokyo"\n'
    (tmp_path / "c.toml").write_text(f'extends = "local"\n{tenant}')
    text = '{{ at|time("HH:mm") }} {{ total|money("EUR") }}'
    places = {f"note/{locale}/email/text.jinja": f"{locale} {text}" for locale in ("de", "en")}
    lay(tmp_path / "ours", {**places, "v.json": '{"at": "2026-11-17T20:30:00Z", "total": 12.5}'})
    given = ("preview", "ours", "note", "--part", "text", "--data", "ours/v.json", "--config", "c.toml")
    assert carillon(tmp_path, *given).strip() == "en 20:30 €12.50"
    assert carillon(tmp_path, *given, "--tenant", "acme").strip() == "de 05:30 €\xa012,50"


@pytest.mark.req("P-1262")
@pytest.mark.parametrize(
    ("rule", "french", "austrian", "asked"),
    [("chain", "en-US €1", "de € 1", "de € 1"), ("default", "en-US €1", "en-US €1", None), ("error", "aa", "de", None)],
)
def test_a_preview_is_of_the_template_that_a_send_chooses(
    tmp_path: Path, rule: str, french: str, austrian: str, asked: str | None
) -> None:
    tenants = "".join(f'[tenant.{name}]\ndefault_locale = "{name}"\n' for name in ("fr", "de-AT"))
    (tmp_path / "c.toml").write_text(f'extends = "local"\n[locale]\non_missing = "{rule}"\n{tenants}')
    text = "{{ 1|money('EUR') }}"
    lay(tmp_path / "ours", {f"note/{locale}/email/text.jinja": f"{locale} {text}" for locale in ("aa", "de", "en-US")})
    given = ("preview", "ours", "note", "--part", "text", "--config", "c.toml")
    for tenant, expected in (("fr", french), ("de-AT", austrian)):
        assert carillon(tmp_path, *given, "--tenant", tenant).replace("\xa0", " ").startswith(expected)
    for locale, shown in (("de-AT", asked), ("fr", None)):
        said = carillon(tmp_path, *given, "--locale", locale, exit_code=0 if shown else 1)
        assert (shown or "carillon: note exists for") in said.replace("\xa0", " ")


@pytest.mark.req("P-1262")
def test_a_preview_in_a_region_is_what_a_send_there_is(listo: Listo, tmp_path: Path) -> None:
    key, text = "cli_region", "{{ 1234.5|money('EUR') }}"
    for locale in ("de", "en-US"):
        body = {"templateKey": key, "channel": "email", "locale": locale, "subjectTemplate": "x", "bodyTemplate": text}
        assert listo.client.call("POST", "/api/v1/templates", body, token("root", role="admin")).status == 201
        lay(tmp_path / "ours", {f"{key}/{locale}/email/text.jinja": text})
    for locale in ("de", "de-AT", "en-GB"):
        sent = listo.sent(key, "email", locale=locale, data={}, headers=token("root", role="admin"))
        shown = carillon(tmp_path, "preview", "ours", key, "--locale", locale, "--part", "text")
        story = listo.story(sent, token("root", role="admin"))
        assert shown.strip() == story["routes"][0]["message"]["text"]


@pytest.mark.req("P-1127")
@pytest.mark.parametrize(("asked", "expected"), [((), "en Eve"), (("--locale", "es-AR"), "es Eva")])
def test_the_sample_is_that_of_the_template_that_is_sent(
    listo: Listo, tmp_path: Path, asked: tuple[str, ...], expected: str
) -> None:
    admin = token("root", role="admin")
    key = f"cli_sample_{len(asked)}"
    for locale, tenant, name in (
        ("es", None, "Eva"),
        ("de", None, "Ilse"),
        ("en-US", None, "Eve"),
        ("es", "acme", "x"),
    ):
        word = locale.partition("-")[0]
        body: dict[str, object] = {
            "templateKey": key,
            "channel": "email",
            "locale": locale,
            "tenantId": tenant,
            "subjectTemplate": "x",
        }
        body |= {"bodyTemplate": f"{word} {{{{ name }}}}", "sample": {"name": name}}
        assert listo.client.call("POST", "/api/v1/templates", body, admin).status == 201
    (tmp_path / "token").write_text(admin["Authorization"].removeprefix("Bearer "))
    given = ("test-send", key, "--to", "me@example.org", "--url", listo.address, "--token-file", "token", "--json")
    said = carillon(tmp_path, *given, *asked)
    story = listo.story(json.loads(said)["notificationId"], admin)
    assert story["routes"][0]["message"]["text"] == expected


@pytest.mark.req("P-1130")
def test_a_folder_uses_the_layouts_and_translations_of_the_settings_folders(tmp_path: Path) -> None:
    settings = 'extends = "local"\n[templates]\nfolders = ["blueprint:templates", "base"]\n'
    (tmp_path / "c.toml").write_text(settings)
    head = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
    lay(
        tmp_path,
        {
            "base/_layouts/frame/html.jinja": "<p>{% block content %}{% endblock %}</p>",
            "base/_locales/en.po": f'{head}msgid "hi"\nmsgstr "Hello"\n',
            "ours/note/en/email/html.jinja": "{% block content %}{{ t('hi') }}{% endblock %}",
            "ours/note/en/email/template.json": '{"layout": "frame"}',
        },
    )
    given = ("--config", "c.toml")
    assert "1 templates read, 0 unfit, 0 missing, 0 untranslated" in carillon(tmp_path, "check", "ours", *given)
    assert "<p>Hello</p>" in carillon(tmp_path, "preview", "ours", "note", "--part", "html", *given)
    assert "1 written" in carillon(tmp_path, "push", "ours", *given)
    assert "no layout frame" in carillon(tmp_path, "check", "ours", exit_code=2)
    # What the settings name need not be on the machine that checks.
    (tmp_path / "base").rename(tmp_path / "gone")
    assert "no layout frame" in carillon(tmp_path, "check", "ours", *given, exit_code=2)


@pytest.mark.req("P-1132")
def test_a_push_says_who_made_the_version(tmp_path: Path) -> None:
    lay(tmp_path / "ours", {"note/en/email/text.jinja": "Hi"})
    carillon(tmp_path, "push", "ours")
    stored = json.loads(carillon(tmp_path, "list", "--json"))["items"][0]
    assert re.fullmatch(r"cli:.+", stored["createdBy"]), stored
    assert "0 written" in carillon(tmp_path, "push", "ours")


@pytest.mark.req("P-1263")
async def test_a_later_folders_translations_hide_none_of_an_earlier_one(tmp_path: Path) -> None:
    """In a preview, and in what the engine sends with the folders of the settings."""
    folders = [str(tmp_path / name) for name in ("base", "middle", "late")]
    settings = tmp_path / "c.toml"
    settings.write_text(f'extends = "local"\n[templates]\nfolders = {json.dumps(folders)}\n')
    for folder, keys in zip(folders, ("abc", "bc", "c"), strict=True):
        name = Path(folder).name
        entries = "".join(f'msgid "{key}"\nmsgstr "{name}"\n\n' for key in keys)
        lay(
            Path(folder),
            {"_locales/en.po": f'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n{entries}'},
        )
    note = {"note/en/email/text.jinja": "{{ t('a') }} {{ t('b') }} {{ t('c') }}", "note/en/email/subject.jinja": "x"}
    lay(tmp_path / "late", note)
    lay(tmp_path / "ours", note)
    given = ("--config", "c.toml")
    assert "0 unfit, 0 missing, 0 untranslated" in carillon(tmp_path, "check", "ours", *given)
    assert carillon(tmp_path, "preview", "ours", "note", "--part", "text", *given).strip() == "base middle late"
    async with open_embedded(str(tmp_path / "carillon.db"), config=settings, environ={}) as engine:
        sent = await engine.send("note", channel="email", recipient="ada@example.org", locale="en")
        await engine.wait(sent.notification_id)
        captured = [one for box in engine.sandboxes for one in box.captured()]
        assert [one.message.text for one in captured if one.message] == ["base middle late"]
