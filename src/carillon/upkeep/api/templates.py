"""The template endpoints: list, show, write, switch off and publish again."""

from typing import Any

from msgspec import UNSET

from carillon.domain.errors import BadTemplate
from carillon.domain.ports import Ids
from carillon.domain.templates import Draft, EngineName, StoredTemplate, TemplateLedger
from carillon.upkeep.api.templates_reading import TemplateReader, TemplateTools, changes_given, fields_given, ready
from carillon.upkeep.api.templates_wire import (
    LISTED,
    CodeView,
    PublishBody,
    RenderBody,
    Rendered,
    TemplateBody,
    TemplateChange,
    TemplateHistory,
    TemplatePage,
    TemplateQuery,
    TemplateView,
    VersionQuery,
    is_id,
    ordering,
    template_view,
)
from carillon.web import (
    ADMINISTRATORS,
    EVERYBODY,
    KNOWN,
    About,
    Answer,
    Callers,
    Endpoint,
    Header,
    Problem,
    Reach,
    Reply,
    Request,
    in_body,
)
from carillon.web.paging import counts
from carillon.web.problems import Detail

_PATH = "/api/v1/templates"
_ID = f"{_PATH}/{{id}}"
_MOUNT = "/template-service/api/v1/templates/{code}"
_EXAMPLES = {"id": "0198d2a4-5c1e-7d30-9a57-3f0c2b9e4d11"}
_BODY: dict[str, Any] = {
    "templateKey": "order_confirmed",
    "channel": "email",
    "locale": "en-US",
    "subjectTemplate": "Order {{order.number}}",
    "bodyTemplate": "Hi {{name}}, your order {{order.number}} is confirmed.",
    "defaultVariables": {"name": "there"},
}
_LANGUAGE = Header("Accept-Language", "Chooses the language.")
_VIEW = Answer(status=200, description="The template", kind=TemplateView)
_MADE = Answer(status=201, description="The version that was made", kind=TemplateView)
_FOR_EDITORS: dict[str, Any] = {"tag": "Templates", "about": ADMINISTRATORS}
_OF_A_TENANT: dict[str, Any] = {
    "tag": "Templates",
    "about": About(callers=Callers.ADMINISTRATORS, tenant=in_body("tenantId")),
}


class TemplateEditor:
    """Shows templates to their editors and writes them."""

    def __init__(self, ledger: TemplateLedger, tools: TemplateTools, ids: Ids) -> None:
        self._ledger = ledger
        self._tools = tools
        self._ids = ids

    async def list(self, request: Request) -> Reply:
        query = request.query(TemplateQuery)
        named = {name: getattr(query, name) for name in ("channel", "template_key", "locale")}
        filters: dict[str, Any] = {name: value for name, value in named.items() if value is not UNSET}
        if query.is_active is not UNSET:
            filters["is_active"] = query.is_active == "true"
        place, offset = LISTED.place(query.cursor, query.page_number, query.page_size)
        filters |= request.reach.filters() | place
        found, total = await self._ledger.list_templates(filters, query.page_size + 1, offset)
        rows, cursor = LISTED.cut(found, query.page_size, [ordering(one) for one in found])
        page = TemplatePage(
            items=[await self._view(one) for one in rows],
            next_cursor=cursor,
            **counts(query.cursor, query.page_number, query.page_size, total),
        )
        return Reply(200, page)

    async def show(self, request: Request) -> Reply:
        version = request.query(VersionQuery).version
        return Reply(200, await self._view(await self._seen(request, None if version is UNSET else version)))

    async def history(self, request: Request) -> Reply:
        stored = await self._seen(request)
        versions = await self._ledger.template_history(stored.template_id)
        return Reply(200, TemplateHistory([await self._view(one) for one in versions]))

    async def create(self, request: Request) -> Reply:
        body = request.json(TemplateBody)
        locale = body.locale or self._tools.locale.default
        draft = Draft(
            template_key=body.template_key,
            channel=body.channel,
            locale=locale,
            body=body.body_template or "",
            subject=body.subject_template,
            html=body.html_template,
            name=body.name,
            description=body.description,
            default_variables=body.default_variables or {},
            category=body.category,
            mjml=body.mjml,
            engine=body.engine or await self._engine(request, body, locale),
            kind=body.kind,
            layout=body.layout,
            sample=body.sample or {},
            fields=fields_given(body.channel, body.push, body.in_app),
            is_active=body.is_active,
            tenant_id=request.reach.tenant_id,
            created_by=request.caller.sub,
        )
        return await self._made(await self._add(draft, body.version))

    async def _engine(self, request: Request, body: TemplateBody, locale: str) -> EngineName:
        """What the template was; jinja if there was none."""
        named = {"template_key": body.template_key, "channel": body.channel, "locale": locale}
        tenant = request.reach.tenant_id
        found, _ = await self._ledger.list_templates(
            named if tenant is None else {**named, "tenant_id": tenant}, 100, 0
        )
        return next((one.engine for one in found if one.tenant_id == tenant), "jinja")

    async def change(self, request: Request) -> Reply:
        body = request.json(TemplateChange)
        stored = await self._own(request)
        for name in ("template_key", "channel", "locale"):
            if getattr(body, name) not in {UNSET, getattr(stored, name)}:
                raise Problem("VALIDATION_ERROR", f"{name} cannot change: post it as another template")
        newest = (await self._ledger.template_history(stored.template_id))[0]
        if body.version is not UNSET and body.version not in {newest.version, newest.version + 1}:
            raise Problem("CONFLICT", f"version {newest.version} was made meanwhile: look at it first")
        changes = changes_given(body, stored.channel)
        # What is left out stays as it is in use; who names the newest version, such as a draft, goes on from that one.
        base = newest if body.version == newest.version else stored
        draft = base.draft(**{"is_active": True, **changes, "created_by": request.caller.sub})
        # What cannot be rendered any more can be switched off.
        if draft.is_active or changes.keys() != {"is_active"}:
            await self._check(draft)
        if not draft.is_active:
            await self._ledger.retire_template(stored.template_id)
        made = await self._stored(draft, None if body.version is UNSET else newest.version + 1)
        return Reply(200, await self._view(made))

    async def retire(self, request: Request) -> Reply:
        stored = await self._own(request)
        await self._ledger.retire_template(stored.template_id, delete=True)
        self._tools.changed()
        return Reply(204, b"")

    async def publish(self, request: Request) -> Reply:
        version = request.json(PublishBody).version
        await self._own(request)
        stored = await self._seen(request, version)
        return await self._made(await self._add(stored.draft(is_active=True, created_by=request.caller.sub), None))

    async def _add(self, draft: Draft, version: int | None) -> StoredTemplate:
        await self._check(draft)
        return await self._stored(draft, version)

    async def _stored(self, draft: Draft, version: int | None) -> StoredTemplate:
        made = await self._ledger.add_template(draft, self._ids(), version)
        if made is None:
            raise Problem("CONFLICT", f"{version} is not the next version of {draft.template_key}")
        self._tools.changed()
        return made

    async def _made(self, made: StoredTemplate) -> Reply:
        return Reply(201, await self._view(made), {"Location": f"{_PATH}/{made.template_id}?version={made.version}"})

    async def _check(self, draft: Draft) -> None:
        if draft.category is not None and self._tools.categories.find(draft.category, draft.tenant_id) is None:
            known = ", ".join(sorted(self._tools.categories.of(draft.tenant_id))) or "none"
            said = f"there is no category {draft.category}; known are {known}"
            raise Problem("VALIDATION_ERROR", f"category: {said}", details=[Detail(said, "category")])
        await ready(self._tools, draft.unstored(), draft.tenant_id)

    async def _view(self, stored: StoredTemplate) -> TemplateView:
        try:
            template = await self._tools.ready(stored.template(), stored.tenant_id)
        except BadTemplate:
            # Its layout may be gone; it is shown nevertheless, so that somebody can repair it.
            return template_view(stored, [])
        return template_view(stored, self._tools.names(template))

    async def _seen(self, request: Request, version: int | None = None) -> StoredTemplate:
        stored = await self._ledger.template(request.params["id"])
        if stored is None or stored.deleted_at is not None or not _may_see(request.reach, stored):
            raise Problem("NOT_FOUND", "there is no template with this id")
        asked = stored if version is None else await self._ledger.template(stored.template_id, version)
        if asked is None:
            raise Problem("NOT_FOUND", "the template has no such version")
        return asked

    async def _own(self, request: Request) -> StoredTemplate:
        stored = await self._seen(request)
        if not request.reach.every_tenant and request.reach.tenant_id != stored.tenant_id:
            raise Problem("FORBIDDEN", "this template is everybody's: post one of your own under its key")
        return stored


def _may_see(reach: Reach, stored: StoredTemplate) -> bool:
    return reach.every_tenant or stored.tenant_id in {None, reach.tenant_id}


def endpoints(ledger: TemplateLedger, tools: TemplateTools, ids: Ids, *, open_mount: bool = False) -> list[Endpoint]:
    """The template endpoints; `open_mount` serves push workers without a token."""
    editor = TemplateEditor(ledger, tools, ids)
    reader = TemplateReader(ledger, tools)
    found = [*_many(editor), _show(editor, reader), *_writing(editor), *_versions(editor), _render(reader)]
    return [*found, _mount(reader, open_mount=open_mount)]


def _many(editor: TemplateEditor) -> list[Endpoint]:
    return [
        Endpoint(
            method="GET",
            path=_PATH,
            call=editor.list,
            name="listTemplates",
            summary="List templates, each in the version in use",
            query=TemplateQuery,
            answers=(Answer(status=200, description="One page", kind=TemplatePage),),
            **_FOR_EDITORS,
        ),
        Endpoint(
            method="POST",
            path=_PATH,
            call=editor.create,
            name="createTemplate",
            summary="Make a template, or the next version of one",
            description="The same key, channel and locale again make the next version under the same id.",
            body=TemplateBody,
            body_examples={"email": _BODY},
            answers=(_MADE,),
            problems=("CONFLICT",),
            **_OF_A_TENANT,
        ),
    ]


def _show(editor: TemplateEditor, reader: TemplateReader) -> Endpoint:
    async def show(request: Request) -> Reply:
        if not is_id(request.params["id"]):
            return await reader.by_code(request, request.params["id"])
        return await editor.show(request)

    return Endpoint(
        method="GET",
        path=_ID,
        call=show,
        name="showTemplate",
        summary="Show one template",
        description=(
            "An administrator asks by id. A key in place of the id is answered in the shape push workers read, see "
            "`/template-service`."
        ),
        tag="Templates",
        about=About(callers=Callers.KNOWN, administrators_if=lambda params: is_id(params["id"])),
        query=VersionQuery,
        path_examples=_EXAMPLES,
        headers=(_LANGUAGE,),
        answers=(_VIEW, Answer(status=200, description="The template, by key", kind=CodeView)),
        problems=("TEMPLATE_NOT_FOUND",),
    )


def _writing(editor: TemplateEditor) -> list[Endpoint]:
    return [
        Endpoint(
            method="PUT",
            path=_ID,
            call=editor.change,
            name="changeTemplate",
            summary="Make the next version",
            description=(
                "What is left out stays. The new version is used at once, unless `isActive` is false: then this "
                "template is used no more, in no version."
            ),
            path_examples=_EXAMPLES,
            body=TemplateChange,
            body_examples={"text": {"bodyTemplate": "Hello {{name}}!"}},
            answers=(_VIEW,),
            problems=("CONFLICT",),
            **_FOR_EDITORS,
        ),
        Endpoint(
            method="DELETE",
            path=_ID,
            call=editor.retire,
            name="deleteTemplate",
            summary="Delete a template",
            description="It is used no more. Its versions are kept: posting its key again makes the next one.",
            path_examples=_EXAMPLES,
            answers=(Answer(status=204, description="It is used no more"),),
            **_FOR_EDITORS,
        ),
    ]


def _versions(editor: TemplateEditor) -> list[Endpoint]:
    return [
        Endpoint(
            method="GET",
            path=f"{_ID}/versions",
            call=editor.history,
            name="listTemplateVersions",
            summary="List every version, newest first",
            path_examples=_EXAMPLES,
            answers=(Answer(status=200, description="The versions", kind=TemplateHistory),),
            **_FOR_EDITORS,
        ),
        Endpoint(
            method="POST",
            path=f"{_ID}/publish",
            call=editor.publish,
            name="publishTemplate",
            summary="Copy an old version as the next one",
            path_examples=_EXAMPLES,
            body=PublishBody,
            body_examples={"first": {"version": 1}},
            answers=(_MADE,),
            **_FOR_EDITORS,
        ),
    ]


def _render(reader: TemplateReader) -> Endpoint:
    return Endpoint(
        method="POST",
        path=f"{_PATH}/render",
        call=reader.render,
        name="renderTemplate",
        summary="Show what a person would get",
        body=RenderBody,
        body_examples={"inline": {"bodyTemplate": "Hi {{name}}", "data": {"name": "Ada"}}},
        headers=(_LANGUAGE,),
        answers=(Answer(status=200, description="Rendered", kind=Rendered, example={"body": "Hi Ada"}),),
        problems=("TEMPLATE_RENDER_ERROR", "TEMPLATE_NOT_FOUND", "CHANNEL_REQUIRED"),
        **_OF_A_TENANT,
    )


def _mount(reader: TemplateReader, *, open_mount: bool) -> Endpoint:
    return Endpoint(
        method="GET",
        path=_MOUNT,
        call=reader.mounted,
        name="readTemplateByCode",
        summary="Read a template as push workers do",
        description="With `/template-service` as TEMPLATE_SERVICE_URL's path.",
        tag="Templates",
        about=EVERYBODY if open_mount else KNOWN,
        path_examples={"code": "welcome"},
        headers=(_LANGUAGE,),
        answers=(Answer(status=200, description="The template", kind=CodeView),),
        problems=("TEMPLATE_NOT_FOUND",),
    )
