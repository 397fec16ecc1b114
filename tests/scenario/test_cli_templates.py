"""A folder of templates and the ledger: examples, check, diff, push of all or none, pull, preview and test-send."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.listo_stand import SECRET, Listo, shared_fixture, token
from tests.support.template_folders import carillon

listo = shared_fixture(JWT_SECRET_KEY=SECRET)


@pytest.mark.req("P-411")
def test_a_folder_is_checked_compared_pushed_and_pulled(tmp_path: Path) -> None:
    assert "56 files written" in carillon(tmp_path, "examples", "ours")
    assert "14 templates read, 0 unfit, 0 missing, 0 untranslated" in carillon(tmp_path, "check", "ours")
    assert "+msgid" in carillon(tmp_path, "diff", "ours", exit_code=1)
    assert "18 written, 0 unchanged (dry run)" in carillon(tmp_path, "push", "ours", "--dry-run")
    assert "18 written, 0 unchanged" in carillon(tmp_path, "push", "ours")
    assert "0 written, 18 unchanged" in carillon(tmp_path, "push", "ours")
    assert "no differences" in carillon(tmp_path, "diff", "ours")
    carillon(tmp_path, "pull", "again")
    assert {
        str(file.relative_to(tmp_path / "ours")): file.read_text() for file in (tmp_path / "ours").rglob("*.*")
    } == {str(file.relative_to(tmp_path / "again")): file.read_text() for file in (tmp_path / "again").rglob("*.*")}


@pytest.mark.req("P-411", "P-409")
def test_one_wrong_template_pushes_nothing_and_missing_translations_are_listed(tmp_path: Path) -> None:
    carillon(tmp_path, "examples", "ours")
    wrong = tmp_path / "ours/receipt/en/email/html.jinja"
    good = wrong.read_text()
    wrong.write_text(good.replace("{% endfor %}", ""))
    assert "(receipt html, line" in carillon(tmp_path, "push", "ours", exit_code=2)
    assert json.loads(carillon(tmp_path, "list", "--json"))["total"] == 0
    wrong.write_text(good + '{{ t("receipt.thanks") }}')
    said = carillon(tmp_path, "check", "ours", exit_code=1)
    assert "untranslated: receipt/en/email: receipt.thanks" in said


@pytest.mark.req("P-412")
@pytest.mark.parametrize(("locale", "total"), [("en", "€1,259.50"), ("de", "1.259,50\xa0€")])
def test_the_examples_speak_two_languages(tmp_path: Path, locale: str, total: str) -> None:
    carillon(tmp_path, "examples", "ours")
    keys = sorted(folder.name for folder in (tmp_path / "ours").iterdir() if not folder.name.startswith("_"))
    assert keys == [
        *("incident_alert", "one_time_code", "order_confirmation", "password_reset", "receipt", "weekly_digest")
    ]
    for key in keys:
        shown = json.loads(carillon(tmp_path, "preview", "ours", key, "--locale", locale, "--json"))
        assert shown["subject"]
        assert "style=" in shown["html"]
        assert "{" not in shown["text"]
        if key == "order_confirmation":
            assert total in shown["html"]
            assert shown["html"].lstrip().startswith("<!DOCTYPE html>")
            assert shown["html"].count("<tbody>") == 1


@pytest.mark.req("P-411")
def test_a_stored_template_is_sent_to_oneself_with_its_sample(listo: Listo, tmp_path: Path) -> None:
    body = {
        "templateKey": "cli_sample",
        "channel": "email",
        "bodyTemplate": "Hi {{ name }}",
        "subjectTemplate": "x",
        "sample": {"name": "Ada"},
    }
    admin = token("root", role="admin")
    assert listo.client.call("POST", "/api/v1/templates", body, admin).status == 201
    secret = tmp_path / "token"
    secret.write_text(admin["Authorization"].removeprefix("Bearer "))
    said = carillon(
        tmp_path,
        "test-send",
        "cli_sample",
        "--to",
        "me@example.org",
        "--url",
        listo.address,
        "--token-file",
        str(secret),
        "--json",
    )
    story = listo.story(json.loads(said)["notificationId"], admin)
    assert story["routes"][0]["message"]["text"] == "Hi Ada"


@pytest.mark.req("P-411", "P-121", "P-122")
def test_fields_and_defaults_of_both_engines_go_to_the_ledger_and_back(tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    files = {
        "ping/en-US/push/text.jinja": "Order {{ number }}\n",
        "ping/en-US/push/push.json": '{\n  "actionUrl": "https://example.org/{{ number }}",\n  "badge": 2\n}\n',
        "ping/en-US/push/sample.json": '{\n  "number": "7"\n}\n',
        "note/en-US/inApp/text.tmpl": "Hi {{name}}\n",
        "note/en-US/inApp/inApp.json": '{\n  "url": "/o/{{number}}"\n}\n',
        "note/en-US/inApp/template.json": '{\n  "defaultVariables": {\n    "name": "you"\n  }\n}\n',
    }
    for name, content in files.items():
        (ours / name).parent.mkdir(parents=True, exist_ok=True)
        (ours / name).write_text(content)
    shown = json.loads(carillon(tmp_path, "preview", "ours", "ping", "--json"))
    assert shown["push"] == {"actionUrl": "https://example.org/7", "badge": 2}
    assert "2 written" in carillon(tmp_path, "push", "ours")
    assert "no differences" in carillon(tmp_path, "diff", "ours")
    (tmp_path / "again/ping/en-US/push").mkdir(parents=True)
    (tmp_path / "again/ping/en-US/push/template.json").write_text("{}")
    carillon(tmp_path, "pull", "again")
    found = {str(file.relative_to(tmp_path / "again")): file.read_text() for file in (tmp_path / "again").rglob("*.*")}
    assert found == files
    (ours / "ping/en-US/push/push.json").write_text('{"badge": 3}')
    assert '+  "badge": 3' in carillon(tmp_path, "diff", "ours", exit_code=1)
    (ours / "ping/en-US/push/push.json").write_text('{"badges": 3}')
    assert "badges" in carillon(tmp_path, "check", "ours", exit_code=2)


@pytest.mark.req("P-745")
def test_a_push_refuses_what_the_api_refuses(tmp_path: Path) -> None:
    parts = {
        "a/en/sms": {"text.jinja": "x", "html.jinja": "<p>x</p>"},
        "b/en/pigeon": {"text.jinja": "x"},
        "c/en/email": {"text.jinja": "x" * 50_001},
        "d/en/email": {"html.jinja": "<p>x</p>", "mjml.jinja": "<mjml><mj-body></mj-body></mjml>"},
        "e/en/email": {"text.jinja": "x", "../../category": "nowhere"},
    }
    for folder, files in parts.items():
        (tmp_path / "ours" / folder).mkdir(parents=True)
        for name, text in files.items():
            (tmp_path / "ours" / folder / name).write_text(text)
    checked = carillon(tmp_path, "check", "ours", exit_code=1)
    pushed = carillon(tmp_path, "push", "ours", exit_code=1)
    for said in (
        "a/en/sms: only an email has HTML",
        "b/en/pigeon: there is no channel pigeon",
        "c/en/email: text has more than 50000 characters",
        "d/en/email: give htmlTemplate or mjml, not both",
        "e/en/email: there is no category nowhere",
    ):
        assert said in checked
        assert said in pushed
    assert json.loads(carillon(tmp_path, "list", "--json"))["total"] == 0


@pytest.mark.req("P-746")
def test_a_push_keeps_names_and_writes_what_a_diff_shows_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "ours/named/en/email/text.jinja"
    file.parent.mkdir(parents=True)
    file.write_text("Hello")
    carillon(tmp_path, "push", "ours")
    with closing(sqlite3.connect(tmp_path / "carillon.db")) as ledger, ledger:
        # As the API stores it.
        ledger.execute(
            "UPDATE templates SET name = 'Greeting', description = 'For guests', body = 'Hello' || char(10, 10)"
        )
    carillon(tmp_path, "pull", "ours")
    assert "no differences" in carillon(tmp_path, "diff", "ours")
    assert "0 written" in carillon(tmp_path, "push", "ours")
    file.write_text("Hello again\n")
    assert "1 written" in carillon(tmp_path, "push", "ours")
    stored = json.loads(carillon(tmp_path, "list", "--json"))["items"][0]
    assert [stored[name] for name in ("version", "name", "description")] == [2, "Greeting", "For guests"]


@pytest.mark.req("P-744")
def test_a_preview_of_a_text_message_shows_its_parts_and_says_what_would_be_refused(tmp_path: Path) -> None:
    settings = 'extends = "local"\n[message.note]\nmax_segments = 1\ntransliterate = true\n'
    (tmp_path / "c.toml").write_text(settings + '[brand.default]\nsign = "All"\n[brand.acme]\nsign = "Acme"\n')
    (tmp_path / "ours/note/en/sms").mkdir(parents=True)
    (tmp_path / "ours/note/en/sms/text.jinja").write_text("{{ brand.sign }} {{ word * 1 }}{{ text }}")
    (tmp_path / "ours/note/en/sms/sample.json").write_text('{"word": 1, "text": "Łódź"}')
    given = ("preview", "ours", "note", "--config", "c.toml")
    shown = json.loads(carillon(tmp_path, *given, "--tenant", "acme", "--json"))
    assert shown["text"] == "Acme 1Lodz"
    assert shown["segments"] == {"encoding": "GSM-7", "units": 10, "segments": 1, "perSegment": 160}
    (tmp_path / "long.json").write_text(json.dumps({"word": 1, "text": "x" * 160}))
    assert '"segments": 2' in carillon(tmp_path, *given, "--data", "long.json", exit_code=1)


@pytest.mark.req("P-746")
def test_a_tenant_pushes_templates_that_use_the_layouts_of_all(tmp_path: Path) -> None:
    for name, text in {
        "all/_layouts/frame/html.jinja": "<html><body>{% block content %}{% endblock %}</body></html>",
        "theirs/note/en/email/html.jinja": "{% block content %}<p>{{ n }}</p>{% endblock %}",
        "theirs/note/en/email/template.json": '{"layout": "frame"}',
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert "there is no layout frame" in carillon(tmp_path, "push", "theirs", "--tenant", "acme", exit_code=2)
    carillon(tmp_path, "push", "all", "--tenant", "globex")
    assert "there is no layout frame" in carillon(tmp_path, "push", "theirs", "--tenant", "acme", exit_code=2)
    carillon(tmp_path, "push", "all")
    assert "note/en/email: version 1" in carillon(tmp_path, "push", "theirs", "--tenant", "acme")
    assert "no differences" in carillon(tmp_path, "diff", "theirs", "--tenant", "acme")


@pytest.mark.req("P-931")
def test_check_names_every_wrong_template_and_files_that_are_no_text(tmp_path: Path) -> None:
    carillon(tmp_path, "examples", "ours")
    ours = tmp_path / "ours"
    (ours / "order_confirmation/en/email/html.jinja").write_text("{% for i in order.items %}\n<b>{{ i.name }</b>")
    (ours / "receipt/de/email/template.json").write_text('{"layout": "ma')
    (ours / "password_reset/de/email/subject.jinja").write_bytes(b"\xff\xfe")
    (ours / "weekly_digest/de/email/subject.jinja").unlink()
    (ours / "weekly_digest/de/email/subject.jinja").mkdir()
    unclosed = "'{{ i.name }</b>' is not closed with }}"
    wrong = [
        "password_reset/de/email/subject.jinja: the file is not UTF-8",
        "receipt/de/email/template.json: Input data was truncated",
        "weekly_digest/de/email/subject.jinja: the file cannot be read: Is a directory",
        f"template order_confirmation/en/email: {unclosed} (order_confirmation html, line 2, column 4)",
    ]
    said = carillon(tmp_path, "check", "ours", exit_code=2).splitlines()
    assert said == [*(f"carillon: {one}" for one in wrong), "10 templates read, 4 unfit, 0 missing, 0 untranslated"]
    assert json.loads(carillon(tmp_path, "check", "ours", "--json", exit_code=2))["unfit"] == wrong
    for command in (("push", "ours"), ("diff", "ours"), ("preview", "ours", "receipt")):
        assert carillon(tmp_path, *command, exit_code=2) == f"carillon: {wrong[0]}\n"


@pytest.mark.req("P-931")
def test_a_mark_at_the_beginning_of_a_file_is_no_text(tmp_path: Path) -> None:
    carillon(tmp_path, "examples", "ours")
    for name in ("subject.jinja", "template.json", "sample.json"):
        file = tmp_path / "ours/receipt/en/email" / name
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    shown = carillon(tmp_path, "preview", "ours", "receipt", "--locale", "en", "--part", "subject")
    assert shown.startswith("Receipt")


@pytest.mark.req("P-931")
def test_what_cannot_be_written_or_read_is_one_line(tmp_path: Path) -> None:
    carillon(tmp_path, "examples", "ours")
    carillon(tmp_path, "push", "ours")
    (tmp_path / "file").write_text("x")
    for command in (("pull", "file"), ("examples", "file")):
        said = carillon(tmp_path, *command, exit_code=2)
        assert said.startswith("carillon: file/_")
        assert said.endswith("the file cannot be written: Not a directory\n")
    said = carillon(tmp_path, "preview", "ours", "receipt", "--data", "nowhere.json", exit_code=2)
    assert said == "carillon: --data nowhere.json: the file cannot be read: No such file or directory\n"
    # What lies there and is no text is written over.
    (tmp_path / "again/receipt/en/email").mkdir(parents=True)
    (tmp_path / "again/receipt/en/email/subject.jinja").write_bytes(b"\xff\xfe")
    carillon(tmp_path, "pull", "again")
    assert (tmp_path / "again/receipt/en/email/subject.jinja").read_text().startswith("{")


@pytest.mark.req("P-932")
def test_values_without_any_value_are_values(tmp_path: Path) -> None:
    carillon(tmp_path, "examples", "ours")
    (tmp_path / "none.json").write_text("{}")
    said = carillon(tmp_path, "preview", "ours", "order_confirmation", "--data", "none.json", exit_code=1)
    assert "missing template variables: order" in said


@pytest.mark.req("P-933")
def test_a_preview_says_what_is_worth_a_look(listo: Listo, tmp_path: Path) -> None:
    mjml = "<mjml><mj-body><!-- <mj-gone/> --><mj-buton>Go</mj-buton></mj-body></mjml>"
    expected = ["the email has no subject", "mj-buton is no element of MJML, or not at its place"]
    body = {"channel": "email", "engine": "jinja", "mjml": mjml}
    answer = listo.client.call("POST", "/api/v1/templates/render", body, token("root", role="admin"))
    assert answer.body["warnings"] == expected
    place = tmp_path / "ours/shop/en-US/email"
    place.mkdir(parents=True)
    (place / "mjml.jinja").write_text(mjml)
    assert json.loads(carillon(tmp_path, "preview", "ours", "shop", "--json"))["warnings"] == expected
