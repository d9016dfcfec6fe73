"""`/v1/adapters`: what the path, the query and the body of a request ask for."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from gliner_bento.errors import Aborted, GLiNERBentoError, InvalidField, UnsupportedMediaType
from gliner_bento.gateway.adapters import Adapters
from gliner_bento.gateway.error_body import error_response, from_model
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.media import JSON, is_json, media_type
from gliner_bento.types import AdapterOptions, PutAdapterRequest

PATH = "/v1/adapters"


def is_upload(method: str, path: str, headers: Headers) -> bool:
    """Whether a request's body is an archive: it may be large, and is no JSON."""
    return method == "PUT" and path.startswith(f"{PATH}/") and not is_json(media_type(headers))


def routes(gateway: Callable[[], Gateway]) -> list[Route]:
    """The routes, over a gateway that may come later."""

    async def collection(_: Request) -> Response:
        try:
            return _json((await gateway().adapters.all()).model_dump_json())
        except GLiNERBentoError as error:
            return error_response(error)

    async def member(request: Request) -> Response:
        answer = {"PUT": _put, "DELETE": _delete}.get(request.method, _get)
        try:
            return await answer(gateway().adapters, request.path_params["adapter_id"], request)
        except ValidationError as invalid:
            return error_response(from_model(invalid))
        except ClientDisconnect:
            return error_response(Aborted("the body ended before it was whole"))
        except GLiNERBentoError as error:
            return error_response(error)

    return [
        Route(PATH, collection, methods=["GET"]),
        Route(f"{PATH}/{{adapter_id}}", member, methods=["GET", "PUT", "DELETE"]),
    ]


async def _get(adapters: Adapters, adapter_id: str, _: Request) -> Response:
    return _json((await adapters.one(adapter_id)).model_dump_json())


async def _delete(adapters: Adapters, adapter_id: str, _: Request) -> Response:
    await adapters.remove(adapter_id)
    return Response(status_code=204)


async def _put(adapters: Adapters, adapter_id: str, request: Request) -> Response:
    options = AdapterOptions.model_validate_strings(dict(request.query_params)).model_dump(exclude_unset=True)
    kind = media_type(request.headers)
    if is_json(kind):
        asked = PutAdapterRequest.model_validate_json(await request.body() or b"{}")
        if twice := sorted(options.keys() & asked.model_fields_set):
            raise InvalidField(f"{twice[0]}: is in the query and in the body", param=twice[0])
        card, created = await adapters.put(adapter_id, asked.model_copy(update=options))
    elif kind == "multipart/form-data":
        raise UnsupportedMediaType("send the archive itself as the body, not a form (curl -T archive.zip)")
    else:
        card, created = await adapters.put(adapter_id, PutAdapterRequest(**options), request.stream())
    return _json(card.model_dump_json(), status=201 if created else 200)


def _json(content: str, status: int = 200) -> Response:
    return Response(content, status_code=status, media_type=JSON)
