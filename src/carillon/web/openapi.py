"""The OpenAPI 3.1 document, made from the declared endpoints and their wire types."""

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import msgspec

from carillon.web.about import Callers
from carillon.web.describing import describe, sentence
from carillon.web.endpoint import Answer, Endpoint, Header
from carillon.web.problems import KINDS, MEDIA_TYPE, ProblemBody

_REF = "#/components/schemas/{name}"
_CORRELATION = Header("X-Correlation-Id", "Echoed when it is fit to be, otherwise made up.")
_OVERRIDE = Header("X-Admin-Override", "Must be `true`: this changes deliveries by hand.", r"^[Tt][Rr][Uu][Ee]\Z")
_FIRST = ("Notifications", "Templates", "Preferences", "People", "Digests", "Streams", "Suppressions", "Dead letters")
"""What a reader of the document looks for first, whatever part of the program brings it."""
_RETRY_AFTER = Header("Retry-After", "Seconds to wait before asking again.")


def document(endpoints: Iterable[Endpoint], *, title: str, version: str, secured: bool) -> bytes:
    """The whole document as JSON text."""
    shown = sorted((endpoint for endpoint in endpoints if not endpoint.hidden), key=_place)
    kinds = _kinds(shown)
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    describe(components, kinds)
    schema_of = {repr(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in shown:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schema_of, secured=secured)
    whole: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version, "description": "Say once that people should be told something."},
        "tags": [{"name": name} for name in dict.fromkeys(endpoint.tag for endpoint in shown)],
        "paths": paths,
        "components": {"schemas": components},
    }
    if secured:
        whole["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer", "description": "A JWT, or an API key."},
            "key": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "An API key."},
        }
    return msgspec.json.encode(_portable(whole))


def _place(endpoint: Endpoint) -> int:
    return _FIRST.index(endpoint.tag) if endpoint.tag in _FIRST else len(_FIRST)


def _kinds(endpoints: list[Endpoint]) -> list[Any]:
    found: list[Any] = [ProblemBody]
    for endpoint in endpoints:
        found += [endpoint.body, *(answer.kind for answer in endpoint.answers)]
    distinct = {repr(kind): kind for kind in found if kind is not None}
    return list(distinct.values())


def _operation(endpoint: Endpoint, schema_of: dict[str, Any], *, secured: bool) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "tags": [endpoint.tag],
        "responses": _responses(endpoint, schema_of, secured=secured),
    }
    if endpoint.description:
        operation["description"] = endpoint.description
    parameters = [*_path_parameters(endpoint), *_query_parameters(endpoint), *_header_parameters(endpoint)]
    if parameters:
        operation["parameters"] = parameters
    if endpoint.body is not None:
        content: dict[str, Any] = {"schema": schema_of[repr(endpoint.body)]}
        if endpoint.body_examples:
            content["examples"] = {name: {"value": value} for name, value in endpoint.body_examples.items()}
        required = not endpoint.body_optional
        operation["requestBody"] = {"required": required, "content": {"application/json": content}}
    if secured and endpoint.about.asks:
        operation["security"] = [{"bearer": []}, {"key": []}]
        if endpoint.about.callers in {Callers.ADMINISTRATORS, Callers.OPERATORS}:
            operation["x-required-role"] = "admin"
        if endpoint.about.callers is Callers.OPERATORS:
            operation["x-every-tenant"] = True
    return operation


def _path_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": sentence(name) or "",
            "schema": {"type": "string", "minLength": 1, "maxLength": endpoint.longest},
            "example": example,
        }
        for name, example in endpoint.path_examples.items()
    ]


def _query_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    if endpoint.query is None:
        return []
    # A struct's schema is a reference into the components; alone, it has only itself there.
    _, components = msgspec.json.schema_components([endpoint.query], ref_template=_REF)
    describe(components, [endpoint.query])
    schema = components[endpoint.query.__name__]
    parameters = []
    for name, inner in schema["properties"].items():
        described = dict(inner)
        parameter = {"name": name, "in": "query", "required": name in schema.get("required", ()), "schema": described}
        if "description" in described:
            parameter["description"] = described.pop("description")
        parameters.append(parameter)
    return parameters


def _header_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {"name": header.name, "in": "header", "description": header.description, "schema": _header_schema(header)}
        for header in (*endpoint.headers, *([_OVERRIDE] if endpoint.override else []), _CORRELATION)
    ]


def _header_schema(header: Header) -> dict[str, Any]:
    return {"type": "string"} if header.pattern is None else {"type": "string", "pattern": header.pattern}


def _responses(endpoint: Endpoint, schema_of: dict[str, Any], *, secured: bool) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for answer in endpoint.answers:
        made = _success(answer, schema_of)
        held = responses.setdefault(str(answer.status), made)
        if held is not made:
            _add_shape(held, answer, schema_of)
    by_status: dict[int, list[str]] = {}
    for code in _codes(endpoint, secured=secured):
        by_status.setdefault(KINDS[code][0], []).append(code)
    for status, codes in sorted(by_status.items()):
        problem: dict[str, Any] = {
            "description": f"{HTTPStatus(status).phrase}: {', '.join(codes)}",
            "content": {MEDIA_TYPE: {"schema": schema_of[repr(ProblemBody)]}},
            "headers": _response_headers((_RETRY_AFTER,) if status in {429, 503} else ()),
        }
        # An answer of the endpoint's own may share the status: the batch's 422 carries its results.
        responses.setdefault(str(status), problem)
    return responses


def _success(answer: Answer, schema_of: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"description": answer.description, "headers": _response_headers(answer.headers)}
    if answer.kind is not None:
        content: dict[str, Any] = {"schema": schema_of[repr(answer.kind)]}
        if answer.example is not None:
            content["example"] = answer.example
        found["content"] = {answer.media_type: content}
    return found


def _add_shape(held: dict[str, Any], answer: Answer, schema_of: dict[str, Any]) -> None:
    """The schema of an answer; one status may have several shapes."""
    content = held["content"][answer.media_type]
    shapes = content["schema"].get("anyOf", [content["schema"]])
    content["schema"] = {"anyOf": [*shapes, schema_of[repr(answer.kind)]]}


def _response_headers(headers: tuple[Header, ...]) -> dict[str, Any]:
    return {
        header.name: {"description": header.description, "schema": _header_schema(header)}
        for header in (*headers, _CORRELATION)
    }


def _codes(endpoint: Endpoint, *, secured: bool) -> list[str]:
    codes = ["MISDIRECTED_REQUEST"]
    if not endpoint.always:
        codes += ["TOO_MANY_REQUESTS", "UNAVAILABLE"]
    if endpoint.body is not None:
        codes += ["VALIDATION_ERROR", "REQUEST_TIMEOUT", "PAYLOAD_TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE"]
    if endpoint.query is not None:
        codes.append("VALIDATION_ERROR")
    if endpoint.path_examples:
        codes.append("NOT_FOUND")
    if endpoint.raw is not None:
        codes += ["REQUEST_TIMEOUT", "PAYLOAD_TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE"]
    if endpoint.override:
        codes.append("ADMIN_OVERRIDE_REQUIRED")
    if secured and endpoint.about.asks:
        codes += ["UNAUTHORIZED", "FORBIDDEN"]
    elif endpoint.method != "GET":
        # A page of another site is refused.
        codes.append("FORBIDDEN")
    return list(dict.fromkeys([*codes, *endpoint.problems]))


def _portable(value: object) -> object:
    r"""Python's end of text is `\Z`, because its `$` also stands before a last newline; JSON Schema's is `$`."""
    if isinstance(value, dict):
        return {
            name: inner.replace(r"\Z", "$") if name == "pattern" and isinstance(inner, str) else _portable(inner)
            for name, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_portable(inner) for inner in value]
    return value
