"""Templates over HTTP: written in versions, rolled back by publishing an old one again."""

from typing import Any

from carillon.domain.ports import Ids
from carillon.domain.templates import TemplateLedger
from carillon.upkeep.api.templates_editing import TemplateDesk
from carillon.upkeep.api.templates_reading import Reading, TemplateTools, is_id
from carillon.upkeep.api.templates_wire import (
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
    Reply,
    Request,
    in_body,
)

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


def endpoints(ledger: TemplateLedger, tools: TemplateTools, ids: Ids, *, open_mount: bool = False) -> list[Endpoint]:
    """The template endpoints; `open_mount` serves push workers without a token."""
    desk = TemplateDesk(ledger, tools, ids)
    reading = Reading(ledger, tools)
    found = [*_many(desk), _show(desk, reading), *_writing(desk), *_versions(desk), _render(reading)]
    return [*found, _mount(reading, open_mount=open_mount)]


def _many(desk: TemplateDesk) -> list[Endpoint]:
    return [
        Endpoint(
            method="GET",
            path=_PATH,
            call=desk.list,
            name="listTemplates",
            summary="List templates, each in the version in use",
            query=TemplateQuery,
            answers=(Answer(status=200, description="One page", kind=TemplatePage),),
            **_FOR_EDITORS,
        ),
        Endpoint(
            method="POST",
            path=_PATH,
            call=desk.create,
            name="createTemplate",
            summary="Make a template, or the next version of one",
            description="The same key, channel and locale again make the next version under the same id.",
            body=TemplateBody,
            body_examples={"email": _BODY},
            answers=(_MADE,),
            problems=("CONFLICT",),
            tag="Templates",
            about=About(callers=Callers.ADMINISTRATORS, tenant=in_body("tenantId")),
        ),
    ]


def _show(desk: TemplateDesk, reading: Reading) -> Endpoint:
    async def show(request: Request) -> Reply:
        if not is_id(request.params["id"]):
            return await reading.by_code(request, request.params["id"])
        return await desk.show(request)

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


def _writing(desk: TemplateDesk) -> list[Endpoint]:
    return [
        Endpoint(
            method="PUT",
            path=_ID,
            call=desk.change,
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
            call=desk.retire,
            name="deleteTemplate",
            summary="Delete a template",
            description="It is used no more. Its versions are kept: posting its key again makes the next one.",
            path_examples=_EXAMPLES,
            answers=(Answer(status=204, description="It is used no more"),),
            **_FOR_EDITORS,
        ),
    ]


def _versions(desk: TemplateDesk) -> list[Endpoint]:
    return [
        Endpoint(
            method="GET",
            path=f"{_ID}/versions",
            call=desk.history,
            name="listTemplateVersions",
            summary="List every version, newest first",
            path_examples=_EXAMPLES,
            answers=(Answer(status=200, description="The versions", kind=TemplateHistory),),
            **_FOR_EDITORS,
        ),
        Endpoint(
            method="POST",
            path=f"{_ID}/publish",
            call=desk.publish,
            name="publishTemplate",
            summary="Copy an old version as the next one",
            path_examples=_EXAMPLES,
            body=PublishBody,
            body_examples={"first": {"version": 1}},
            answers=(_MADE,),
            **_FOR_EDITORS,
        ),
    ]


def _render(reading: Reading) -> Endpoint:
    return Endpoint(
        method="POST",
        path=f"{_PATH}/render",
        call=reading.render,
        name="renderTemplate",
        summary="Show what a person would get",
        body=RenderBody,
        body_examples={"inline": {"bodyTemplate": "Hi {{name}}", "data": {"name": "Ada"}}},
        headers=(_LANGUAGE,),
        answers=(Answer(status=200, description="Rendered", kind=Rendered, example={"body": "Hi Ada"}),),
        problems=("TEMPLATE_RENDER_ERROR", "TEMPLATE_NOT_FOUND", "CHANNEL_REQUIRED"),
        **_FOR_EDITORS,
    )


def _mount(reading: Reading, *, open_mount: bool) -> Endpoint:
    return Endpoint(
        method="GET",
        path=_MOUNT,
        call=reading.mounted,
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
