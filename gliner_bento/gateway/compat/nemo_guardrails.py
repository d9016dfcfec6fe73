"""The two wire formats that NeMo Guardrails' GLiNER rail (0.24.1) uses: the chat completions of NVIDIA's inference
microservice (NIM) for GLiNER, and the format of NeMo's earlier GLiNER server.

Unknown fields are ignored, because clients of chat completions send some. Entities never overlap, whatever `flat_ner`
is, because the rail replaces them from the end of the text, and nested ones would garble it. `chunk_length` and
`overlap` are checked but not used: long texts are processed in windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Literal

from pydantic import BaseModel, Field, model_validator
from starlette.requests import Request
from starlette.responses import Response

from gliner_bento.errors import InvalidField, NotReady
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.endpoint import Endpoint, json_response
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.json_body import json_body
from gliner_bento.gateway.json_parts import LazySequence, LazyText, Text, json_text
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.shared_routes import DetailError, now_s
from gliner_bento.gateway.v1.models import list_models
from gliner_bento.gateway.wire_format import WireFormat, extract_errors
from gliner_bento.model_types import ListedModels
from gliner_bento.privacy.recognizers.labels import for_model
from gliner_bento.privacy.spans import merged, spans_of
from gliner_bento.tasks.extraction import Entity, ExtractionOptions, ExtractResponse, extraction_of
from gliner_bento.tasks.fields import Elements, Lenient, Name, Score
from gliner_bento.tasks.recognition import answer_labels, enabled


@dataclass(frozen=True, slots=True)
class Options:
    """The settings of this format; docs/settings.md describes each."""

    nemo_prefix: str
    nemo_labels: Sequence[str]


class _DetectionRequest(Lenient):
    """Fields of the requests of both formats."""

    labels: Elements[list[Name]] | None = Field(default=None, description="Default: the server's nemo_labels.")
    threshold: Score = 0.5
    chunk_length: Annotated[int, Field(ge=1)] = Field(default=384, description="Characters. Checked but not used.")
    overlap: Annotated[int, Field(ge=0)] = Field(default=128, description="Characters. Checked but not used.")
    flat_ner: bool = Field(default=False, description="Not used: spans never overlap.")
    model: str | None = Field(default=None, description="Ignored if the server has one model.")

    @model_validator(mode="after")
    def _check_overlap(self) -> _DetectionRequest:
        if "overlap" in self.model_fields_set and self.overlap >= self.chunk_length:
            raise ValueError("overlap: must be smaller than chunk_length")
        return self


class TextPart(BaseModel):
    """A part of a message."""

    text: str


class ChatMessage(BaseModel):
    """A message of a chat."""

    content: str | Elements[list[TextPart]]
    role: str = "user"


class ChatCompletionRequest(_DetectionRequest):
    """The body of `POST /v1/chat/completions`. The last message is the text."""

    messages: Elements[Annotated[list[ChatMessage], Field(min_length=1)]]
    stream: bool | None = Field(default=None, description="true is refused.")


class NemoExtractRequest(_DetectionRequest):
    """The body of the earlier server's `POST /v1/extract`."""

    text: str


@dataclass(frozen=True, slots=True)
class DetectedEntities:
    """The JSON in the content of a chat completion."""

    entities: Sequence[Entity]
    total_entities: int
    tagged_text: Text


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """The message with the answer: `content` is the JSON of `DetectedEntities`."""

    content: Text
    role: Literal["assistant"] = "assistant"


@dataclass(frozen=True, slots=True)
class ChatChoice:
    """The only choice."""

    message: AssistantMessage
    index: int = 0
    finish_reason: Literal["stop"] = "stop"


@dataclass(frozen=True, slots=True)
class ChatUsage:
    """Tokens that were processed."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class ChatCompletion:
    """The answer of `POST /v1/chat/completions`."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: ChatUsage
    object: Literal["chat.completion"] = "chat.completion"


@dataclass(frozen=True, slots=True)
class NemoEntity:
    """An entity, as the earlier server names its fields."""

    value: str
    suggested_label: str
    start_position: int
    end_position: int
    score: float


@dataclass(frozen=True, slots=True)
class NemoExtractResponse:
    """The answer of the earlier server's `POST /v1/extract`."""

    entities: Sequence[NemoEntity]
    total_entities: int
    tagged_text: Text


@dataclass(frozen=True, slots=True)
class NemoLabelList:
    """The answer of the earlier server's `GET /v1/labels`."""

    labels: Sequence[str]
    count: int
    categories: dict[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NemoHealth:
    """The answer of the earlier server's `GET /health`."""

    model_name: str
    device: str
    default_labels_count: int
    status: Literal["healthy"] = "healthy"
    server: str = "gliner-bento"


async def _chat(gateway: Gateway, context: Context, request: Request) -> Response:
    body = await json_body(request, ChatCompletionRequest)
    if body.stream:
        raise InvalidField("stream: not supported", param="stream")
    content = body.messages[-1].content
    text = content if isinstance(content, str) else "".join(part.text for part in content)
    answer, entities = await _detect(gateway, context, text, body)
    detected = DetectedEntities(entities, len(entities), _tagged(text, entities))
    tokens = answer.usage.tokens
    return json_response(
        ChatCompletion(
            id=f"chatcmpl-{context.id}",
            created=now_s(),
            model=answer.model,
            choices=[ChatChoice(AssistantMessage(json_text(detected)))],
            usage=ChatUsage(prompt_tokens=tokens, total_tokens=tokens),
        )
    )


async def _extract(gateway: Gateway, context: Context, request: Request) -> Response:
    body = await json_body(request, NemoExtractRequest)
    _, entities = await _detect(gateway, context, body.text, body)
    nemo_entities = LazySequence(_nemo_entity, entities)
    return json_response(NemoExtractResponse(nemo_entities, len(entities), _tagged(body.text, entities)))


async def _labels(gateway: Gateway, context: Context, _: Request) -> Response:
    labels = gateway.options.of_format(Options).nemo_labels
    return json_response(NemoLabelList(labels, len(labels)))


async def _health(gateway: Gateway, context: Context, _: Request) -> Response:
    model = await (await gateway.served(context)).info()
    if not await gateway.ready():
        raise NotReady("the server is not ready")
    return json_response(NemoHealth(model.model, model.device, len(gateway.options.of_format(Options).nemo_labels)))


async def _detect(
    gateway: Gateway, context: Context, text: str, body: _DetectionRequest
) -> tuple[ExtractResponse, Sequence[Entity]]:
    """The answer, and its entities as the spans to replace: overlapping ones are one."""
    context.choose_model(gateway.if_several(body.model))
    served = await gateway.served(context)
    labels, recognizers = (body.labels, True) if body.labels else _defaults(served.limits)
    options = ExtractionOptions(
        labels=labels, threshold=body.threshold, recognizers=recognizers, across_empty_lines=True
    )
    answer = await gateway.run(context, extraction_of([text], options, all_found=True))
    spans = merged(spans_of(text, answer.entities))
    entities = [Entity(span.start, span.end, text[span.start : span.end], span.label, span.score) for span in spans]
    return answer, entities


def _defaults(options: GatewayOptions) -> tuple[Sequence[str], dict[str, str]]:
    """Those of `nemo_labels` that the model is asked for; and the labels of the recognizers, which find the others."""
    labels, configured = options.of_format(Options).nemo_labels, options.recognizers
    recognized = answer_labels(True, {label: label for label in labels}, configured)
    return for_model(labels, enabled(configured)) or labels, recognized


def _nemo_entity(entity: Entity) -> NemoEntity:
    return NemoEntity(entity.text, entity.label, entity.start, entity.end, entity.score)


def _tagged(text: str, entities: Sequence[Entity]) -> LazyText:
    """The text with each entity as `[text](label)`. entities: in order of position, without overlaps."""
    return LazyText(partial(_tagged_pieces, text, entities))


def _tagged_pieces(text: str, entities: Sequence[Entity]) -> Iterator[str]:
    position = 0
    for entity in entities:
        yield f"{text[position : entity.start]}[{entity.text}]({entity.label})"
        position = entity.end
    yield text[position:]


_TEXT = "Ada Lovelace lives in London."
_SHARED = {"labels": ["name", "city"], "threshold": 0.5, "chunk_length": 384, "overlap": 128, "flat_ner": False}
_FORMAT = WireFormat(
    error=DetailError,
    examples={
        ChatCompletionRequest: {
            "model": "nvidia/gliner-pii",
            "messages": [{"role": "user", "content": _TEXT}],
            **_SHARED,
        },
        NemoExtractRequest: {"text": _TEXT, **_SHARED},
    },
)


def endpoints(options: GatewayOptions) -> list[Endpoint]:
    """The NIM's route, and the earlier server's routes below `nemo_prefix`."""
    prefix, suffix = options.of_format(Options).nemo_prefix, "of NeMo's earlier GLiNER server"
    return [
        _FORMAT.post(
            "/v1/chat/completions",
            _chat,
            "nemo_chat_completion",
            "The format of the GLiNER NIM",
            request=ChatCompletionRequest,
            response=ChatCompletion,
            errors=extract_errors(),
        ),
        _FORMAT.post(
            f"{prefix}/v1/extract",
            _extract,
            "nemo_extract",
            f"The format {suffix}",
            request=NemoExtractRequest,
            response=NemoExtractResponse,
            errors=extract_errors(),
        ),
        _FORMAT.get(f"{prefix}/v1/models", list_models, "nemo_models", f"The models {suffix}", response=ListedModels),
        _FORMAT.get(
            f"{prefix}/v1/labels", _labels, "nemo_labels", f"The default labels {suffix}", response=NemoLabelList
        ),
        _FORMAT.get(f"{prefix}/health", _health, "nemo_health", f"The state {suffix}", response=NemoHealth),
    ]
