"""Templates from files: `<root>/<code>/<locale>/<channel>/{text,subject,html}.tmpl`."""

from pathlib import Path

from carillon.domain.errors import BadTemplate, ConfigurationError
from carillon.domain.notifications import Template
from carillon.intake.render import check_template

PARTS = ("subject", "text", "html")


class FileTemplates:
    """All templates of a folder, read and checked once at the start."""

    def __init__(self, templates: dict[tuple[str, str, str], Template]) -> None:
        self._templates = templates
        self._variants: dict[str, list[tuple[str, str]]] = {}
        for code, channel, locale in sorted(templates):
            self._variants.setdefault(code, []).append((channel, locale))

    @classmethod
    def read(cls, *roots: Path) -> "FileTemplates":
        """Read every folder given; a later one overrides an earlier one."""
        found: dict[tuple[str, str, str], Template] = {}
        for root in roots:
            for folder in sorted({file.parent for file in root.glob("*/*/*/*.tmpl")}):
                template = _read_one(folder)
                found[template.code, template.channel, template.locale] = template
        return cls(found)

    async def find(self, code: str, channel: str, locale: str, tenant_id: str | None = None) -> Template | None:
        """A folder's templates are everybody's."""
        del tenant_id
        return self._templates.get((code, channel, locale))

    async def variants(self, code: str, tenant_id: str | None = None) -> list[tuple[str, str]]:
        """As `find`."""
        del tenant_id
        return self._variants.get(code, [])

    def under(self, code: str) -> dict[tuple[str, str], Template]:
        """Everything of one code, by channel and locale."""
        return {
            (channel, locale): self._templates[code, channel, locale]
            for channel, locale in self._variants.get(code, [])
        }

    def all(self) -> dict[tuple[str, str, str], Template]:
        """Everything, by code, channel and locale."""
        return dict(self._templates)

    def count(self) -> int:
        """How many templates there are, for `doctor`."""
        return len(self._templates)


def _read_one(folder: Path) -> Template:
    code, locale, channel = folder.parts[-3:]
    parts: dict[str, str] = {}
    for part in PARTS:
        file = folder / f"{part}.tmpl"
        if file.exists():
            # Editors end files with a line break; a subject with one would be refused as two lines.
            parts[part] = file.read_text(encoding="utf-8").rstrip("\n")
            try:
                check_template(parts[part])
            except BadTemplate as error:
                raise ConfigurationError(f"template {code}/{locale}/{channel}/{part}.tmpl: {error}") from error
    if "text" not in parts:
        raise ConfigurationError(f"template {code}/{locale}/{channel}: text.tmpl is missing")
    return Template(
        code=code,
        channel=channel,
        locale=locale,
        text=parts["text"],
        subject=parts.get("subject"),
        html=parts.get("html"),
    )
