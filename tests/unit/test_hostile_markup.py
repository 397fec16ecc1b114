"""Where a value stands in HTML decides what it may be; MJML that cannot be read names its place."""

from collections.abc import Callable
from typing import Any

import pytest

from carillon.domain.errors import BadIntent, BadTemplate
from carillon.domain.notifications import Template
from carillon.intake.jinja.ready import Composer
from carillon.intake.markup import spots
from carillon.intake.render import check_parts, render_message

CATALOGUE = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "said"\nmsgstr "{x}"\n'
LINKS = [
    '<a href="{}">x</a>',
    '<svg><a xlink:href="{}">x</a></svg>',
    '<img src="{}" alt="x">',
    '<img srcset="{}" alt="x">',
    '<img srcset="https://example.org/a.png 1x, {} 2x" alt="x">',
    '<form action="{}"></form>',
    '<button formaction="{}">x</button>',
    '<video poster="{}"></video>',
    '<table background="{}"><tbody><tr><td>x</td></tr></tbody></table>',
    '<object data="{}"></object>',
    '<blockquote cite="{}">x</blockquote>',
    '<meta http-equiv="refresh" content="0; url={}">',
    '<meta http-equiv="refresh" content="0;{}">',
    '<svg><animate attributeName="href" values="#a;{}"></animate></svg>',
    "<p style=\"background: url('{}')\">x</p>",
    '<p style="background: url({})">x</p>',
]
"""Every way in which HTML holds a link, with a place for it."""
CODE = [
    '<a onclick="{}">x</a>',
    "<a onclick='go(\"{}\")'>x</a>",
    "<img src='x.png' onerror={} alt='x'>",
    '<body ONLOAD="{}">x</body>',
    '<iframe srcdoc="{}"></iframe>',
    "<script>var a = '{}'</script>",
    '<p {}="{}">x</p>',
    '<!--[if mso]><a onclick="{}">x</a><![endif]-->',
]
"""Every way in which a value would be code."""
SCRIPTS = ["javascript:alert(1)", " Java\tScript:alert(1)", "vbscript:x", "data:text/html,x"]


def jinja(html: str | None = None, others: dict[str, dict[str, Any]] | None = None, **fields: Any) -> Template:
    def template(key: str, **said: Any) -> Template:
        return Template(**{"code": key, "channel": "email", "locale": "en", "engine": "jinja", "text": "", **said})

    found = {key: {("email", "en"): template(key, **said)} for key, said in (others or {}).items()}
    return Composer(default_locale="en").ready(template("mail", html=html, **fields), lambda key: found.get(key, {}))


def written(source: str, tag: str) -> dict[str, Callable[[], Template]]:
    """The same HTML in a template of its own, a layout, a partial, a macro, MJML, and with a translated value."""
    html = source.replace("{}", tag)
    translated = source.replace("{}", "{{ t('said', x=x) }}")
    macro = "{% macro m(x) %}" + html + "{% endmacro %}"
    raw = f"<mjml><mj-body><mj-raw>{html}</mj-raw></mj-body></mjml>"
    inside = "{% block content %}{% endblock %}"
    made: dict[str, Callable[[], Template]] = {
        "own": lambda: jinja(html),
        "layout": lambda: jinja("<p>y</p>", {"base": {"html": html + inside, "kind": "layout"}}, layout="base"),
        "partial": lambda: jinja('{% include "one" %}', {"one": {"html": html, "kind": "partial"}}),
        "macro": lambda: jinja('{% from "one" import m %}{{ m(x) }}', {"one": {"html": macro, "kind": "partial"}}),
        "translation": lambda: jinja(translated, {"translations": {"text": CATALOGUE, "kind": "catalogue"}}),
    }
    # XML has quotes, and names that are no values; what is in single quotes is a name after MJML has written it.
    if not any(odd in html for odd in ("<meta", "={{", "='go")):
        made["mjml"] = lambda: jinja(mjml=raw)
    return made


@pytest.mark.req("P-840")
@pytest.mark.parametrize("source", LINKS)
def test_no_value_writes_a_link_that_runs(source: str) -> None:
    for name, made in written(source, "{{ x }}").items():
        template = made()
        for script in SCRIPTS:
            with pytest.raises(BadIntent):
                render_message(template, {"x": script})
        # The control: a link that runs nothing is written.
        assert "https://example.org/y" in (render_message(template, {"x": "https://example.org/y"}).html or ""), name
    simple = Template(code="mail", channel="email", locale="en", text="x", html=source.replace("{}", "{{x}}"))
    for script in SCRIPTS:
        with pytest.raises(BadIntent):
            render_message(simple, {"x": script})
    assert "https://example.org/y" in (render_message(simple, {"x": "https://example.org/y"}).html or "")
    with pytest.raises(BadTemplate, match="a link begins with"):
        jinja(source.replace("{}", "javascript:alert(1)"))


@pytest.mark.req("P-840")
@pytest.mark.parametrize("link", ["&#106;avascript:x", "javascript&colon;x", "java&Tab;script:x", "&#x6A;avascript:x"])
def test_entities_hide_no_script_in_trusted_html(link: str) -> None:
    with pytest.raises(BadIntent, match="a link would begin with"):
        render_message(jinja("{{ x|safe }}"), {"x": f'<a href="{link}">x</a>'})
    assert render_message(jinja("{{ x|safe }}"), {"x": '<a href="/a?b=1&#38;c=2">'}).html == '<a href="/a?b=1&#38;c=2">'


@pytest.mark.req("P-841")
@pytest.mark.parametrize("source", CODE)
def test_no_value_is_code(source: str) -> None:
    for name, made in written(source, "{{ x }}").items():
        with pytest.raises(BadTemplate, match="never a part of code") as refused:
            made()
        assert refused.value.place is not None, name
    simple = Template(code="mail", channel="email", locale="en", text="x", html=source.replace("{}", "{{x}}"))
    with pytest.raises(BadTemplate, match="never a part of code"):
        check_parts(simple)
    with pytest.raises(BadIntent, match="never a part of code"):
        render_message(simple, {"x": "1"})


@pytest.mark.req("P-841")
@pytest.mark.parametrize(
    ("source", "fits", "breaks"),
    [
        ("<p class={{x}}>", "wide", "wide onclick=alert(1)"),
        ("<a href={{x}}>", "/a?b=1", "/a onclick=alert(1)"),
        ("<input {{x}}>", "disabled", "onfocus=alert(1)"),
        ("<p>n <{{x}} m", "5", "img src=y onerror=alert(1) "),
        ('<p style="color: {{x}}">', "rgb(1, 2, 3)", "expression(alert(1))"),
        ('<p style="color: {{x}}">', "#fff", "red; background: url(java\tscript:alert(1))"),
        ('<p style="color: {{x}}">', "red", "\\65xpression(alert(1))"),
        ("<style>p { color: {{x}} }</style><p>y</p>", "red", "red} @import 'https://example.org/x.css'; p{"),
        ('<p style="{{x}}">', "font: 1em Arial, sans-serif", "-moz-binding: url(https://example.org/x)"),
    ],
)
def test_a_value_does_not_leave_its_place(source: str, fits: str, breaks: str) -> None:
    simple = Template(code="mail", channel="email", locale="en", text="x", html=source)
    for template in (jinja(source), simple):
        assert fits in (render_message(template, {"x": fits}).html or "")
        with pytest.raises(BadIntent) as refused:
            render_message(template, {"x": breaks})
        assert refused.value.code == "TEMPLATE_RENDER_ERROR"


@pytest.mark.req("P-841")
def test_conditions_hide_no_place() -> None:
    """Each way through a condition is read: a quote of one does not close that of the other."""
    for source in (
        "{% if a %}<a onclick='{% else %}<a title='{% endif %}{{ x }}'>",
        "{% if a %}<a title='{% else %}<a onclick='{% endif %}{{ x }}'>",
        "{% if a %}<a title='{% elif b %}<a onclick='{% else %}<a id='{% endif %}{{ x }}'>",
        "{% for a in b %}<a onclick='{% endfor %}{{ x }}'>",
        "<a on{# a comment #}click='{{ x }}'>",
        "<a {% if a %}on{% endif %}click='{{ x }}'>",
        "{% raw %}<a onclick='{% endraw %}{{ x }}'>",
    ):
        with pytest.raises(BadTemplate, match="never a part of code"):
            jinja(source, text="y")
    # The controls: what is no code stays free, code of the author's own included.
    for source in (
        '<a onclick="{% if a %}x()">{% else %}y()">{% endif %}{{ x }}</a>',
        '<script type="application/ld+json">{"number": "{{ x }}"}</script>',
        '<td {% if a %}class="{{ x }}"{% endif %} width={{ 5 if not a }}>{{ x if a }}</td>',
        "<p>5 < 6 {{ x }}</p>",
        '<!-- <a onclick="{{ x }}"> -->',
    ):
        assert "some text" in (render_message(jinja(source, text="y"), {"a": 1, "x": "some text"}).html or "")


def test_many_conditions_are_read_in_time_and_keep_the_dangerous_way() -> None:
    pieces: list[str | tuple[str]] = []
    for number in range(40):
        pieces += [("if",), f"<a{number} b='", ("endif",)]
    pieces += [("if",), "<a onclick='", ("endif",), ("",)]
    assert spots(pieces, lambda piece: None if isinstance(piece, str) else piece[0])[-1] == "code"


LAYOUT = (
    "<mjml>\n <mj-head>\n  <mj-title>é</mj-title>{}\n </mj-head>\n "
    "<mj-body>{% block content %}{% endblock %}</mj-body></mjml>"
)
BODY = "<mjml>\n<mj-body>\n {}</mj-body></mjml>"


@pytest.mark.req("P-842")
@pytest.mark.parametrize(
    ("fault", "said", "column"),
    [
        ("é{{ x }}<mj-section foo=bar></mj-section>", "'foo=bar>' is not understood", 22),
        ("<mj-section><mj-column></mj-section>", "<mj-column> is not closed", 14),
        ("<mj-section></mj-column></mj-section>", "</mj-column> has no beginning", 14),
        ("{% if x %}<mj-text>a < b</mj-text>{% endif %}", "'< b</mj-text>' is not understood", 23),
        ('<mj-include path="x" />', "write {% include", 2),
        ("<mj-table>{% for a in x %}<tr><td>y</td></tr>{% endfor %}</mj-table><mj-section", "is not understood", 81),
        ("<mj-text>", "<mj-text> is not closed", 2),
    ],
)
def test_mjml_errors_name_their_line_and_column(fault: str, said: str, column: int) -> None:
    with pytest.raises(BadTemplate) as refused:
        jinja(mjml=BODY.replace("{}", fault))
    assert said in refused.value.message
    assert refused.value.place == ("mail", 3, column, "mjml")
    # The same text in a partial is named by the partial.
    with pytest.raises(BadTemplate) as refused:
        jinja(mjml=BODY.replace("{}", '{% include "one" %}'), others={"one": {"mjml": f"\n{fault}", "kind": "partial"}})
    assert refused.value.place is not None
    assert refused.value.place.template in {"one", "mail"}


@pytest.mark.req("P-842")
def test_mjml_errors_of_a_layout_name_the_layout() -> None:
    with pytest.raises(BadTemplate) as refused:
        jinja(
            mjml="<mj-section></mj-section>",
            layout="base",
            others={"base": {"mjml": LAYOUT.replace("{}", "<mj-nope />"), "kind": "layout"}},
        )
    assert refused.value.place == ("base", 3, 25, "mjml")
    with pytest.raises(BadTemplate) as refused:
        jinja(
            mjml="\n <mj-text>",
            layout="base",
            others={"base": {"mjml": LAYOUT.replace("{}", ""), "kind": "layout"}},
        )
    assert refused.value.place == ("mail", 2, 2, "mjml")


@pytest.mark.req("P-842")
def test_a_scripted_link_of_a_layout_names_the_layout() -> None:
    base = {"html": '<main>\n  <a href="javascript:x">y</a>{% block content %}{% endblock %}</main>', "kind": "layout"}
    with pytest.raises(BadTemplate, match="a link begins with javascript:") as refused:
        jinja("<p>z</p>", {"base": base}, layout="base")
    assert refused.value.place == ("base", 2, 12, "html")
