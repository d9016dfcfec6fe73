"""Label Studio's ML backend (label-studio 1.23): pre-annotations of a project's tasks (documents to annotate).

The labels and relations are those of the project's labelling configuration, which each request contains. Nothing of a
request is stored, neither project nor access token. A task that fails has an empty result with an `error`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal
from xml.etree import ElementTree

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from gliner_bento.errors import InvalidField
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.endpoint import COMMON_ERRORS, Endpoint, json_response
from gliner_bento.gateway.error_body import STATUSES
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.json_body import json_body
from gliner_bento.gateway.json_parts import LazySequence
from gliner_bento.gateway.models import ServedModel
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.shared_routes import HEALTH, MessageError
from gliner_bento.gateway.wire_format import POST_ERRORS, WireFormat
from gliner_bento.model_types import short_name
from gliner_bento.tasks.extraction import TEXT, BatchResult, Extraction, ExtractionOptions, Relation, extraction_of
from gliner_bento.tasks.fields import Elements, Lenient

_EVENTS = {"ANNOTATION_CREATED", "ANNOTATION_UPDATED", "ANNOTATION_DELETED", "PROJECT_UPDATED", "START_TRAINING"}
_MAX_CONFIG_CHARS = 2**18
_CONFIG = (
    '<View><Labels name="label" toName="text"><Label value="person"/><Label value="organization"/></Labels>'
    '<Text name="text" value="$text"/></View>'
)


class LabelStudioSetupRequest(Lenient):
    """The body of `POST /setup`."""

    project: str | int | None = None


class LabelStudioTask(Lenient):
    """A task. The labelling configuration names the field of `data` that has the task's text."""

    data: dict[str, Any]


class LabelStudioPredictRequest(Lenient):
    """The body of `POST /predict`."""

    tasks: Elements[list[LabelStudioTask]]
    label_config: str = Field(description="The project's labelling configuration, in XML.")


class LabelStudioWebhookRequest(Lenient):
    """The body of `POST /webhook`."""

    action: str | None = None


@dataclass(frozen=True, slots=True)
class LabelStudioVersion:
    """The answer of `POST /setup`."""

    model_version: Annotated[str, Field(description="Changes with the model and the default thresholds.")]


@dataclass(frozen=True, slots=True)
class LabelStudioVersions:
    """The answer of `GET /versions`."""

    versions: list[str]


@dataclass(frozen=True, slots=True)
class LabelStudioPrediction:
    """The regions and relations of a task. score: the lowest score of its regions; 0 if there are none."""

    result: Sequence[dict[str, Any]]
    score: float
    model_version: str
    error: str | None = None


@dataclass(frozen=True, slots=True)
class LabelStudioPredictions:
    """The answer of `POST /predict`: one prediction per task, in order."""

    results: list[LabelStudioPrediction]


@dataclass(frozen=True, slots=True)
class LabelStudioAccepted:
    """The answer of `POST /webhook`."""

    status: Literal["ok"] = "ok"


@dataclass(frozen=True, slots=True)
class _Labelling:
    """What a labelling configuration asks for. from_name, to_name: names of its <Labels> and <Text> tags. field: the
    field of a task's `data` that has the text. has_url: the field has the text's address, which is not fetched. labels,
    relations: what the model reads for each name in annotations."""

    from_name: str
    to_name: str
    field: str
    has_url: bool
    labels: Mapping[str, str]
    relations: Mapping[str, str]

    def text_of(self, task: LabelStudioTask) -> str | None:
        text = task.data.get(self.field)
        return text if isinstance(text, str) and not self.has_url else None


def _labelling(config: str) -> _Labelling:
    """Parse a labelling configuration, in linear time. Raises InvalidField, also for declarations (`<!...>`): the XML
    entities that they declare could expand without bound."""
    if len(config) > _MAX_CONFIG_CHARS:
        message = f"label_config: {len(config)} characters; the limit is {_MAX_CONFIG_CHARS}"
        raise InvalidField(message, param="label_config")
    if "<!" in config.replace("<!--", ""):
        raise InvalidField("label_config: declarations are not supported", param="label_config")
    try:
        root = ElementTree.fromstring(config)
    except ElementTree.ParseError as error:
        raise InvalidField(f"label_config: not valid XML: {error}", param="label_config") from None
    texts = {tag.get("name"): tag for tag in root.iter("Text")}
    for control in root.iter("Labels"):
        if control.find(".//Labels") is not None:
            raise InvalidField("label_config: <Labels> within <Labels>", param="label_config")
        if (text := texts.get(to_name := control.get("toName"))) is not None:
            labels = _hints(control, "Label")
            if labels:
                relations = _hints(root, "Relation")
                field, has_url = text.get("value", "").removeprefix("$"), text.get("valueType") == "url"
                return _Labelling(control.get("name", ""), str(to_name), field, has_url, labels, relations)
    raise InvalidField("label_config: needs <Labels> with a <Label>, whose toName is a <Text>", param="label_config")


def _hints(parent: ElementTree.Element, tag: str) -> dict[str, str]:
    """What the model reads for each tag (its hint or else its value), by its name in annotations (its alias or else its
    value)."""
    hints = {}
    for element in parent.iter(tag):
        if value := element.get("value"):
            hints[element.get("alias") or value] = element.get("hint") or value
    return hints


async def _version(served: ServedModel) -> str:
    model, limits = await served.info(), served.limits
    thresholds = f"{limits.default_threshold:g}-{limits.default_relation_threshold:g}"
    return "-".join(filter(None, (short_name(model.model), model.fingerprint, thresholds)))


async def _setup(gateway: Gateway, context: Context, request: Request) -> Response:
    await json_body(request, LabelStudioSetupRequest)
    return json_response(LabelStudioVersion(await _version(await gateway.served(context))))


async def _versions(gateway: Gateway, context: Context, _: Request) -> Response:
    return json_response(LabelStudioVersions([await _version(await gateway.served(context))]))


async def _webhook(_: Gateway, __: Context, request: Request) -> Response:
    """Accepts events, which change nothing, because annotations do not train the model. A known event gets 201."""
    event = await json_body(request, LabelStudioWebhookRequest)
    return json_response(LabelStudioAccepted(), 201 if event.action in _EVENTS else 200)


def _with_201(operation: dict[str, Any]) -> dict[str, Any]:
    operation["responses"]["201"] = {**operation["responses"]["200"], "description": "A known event"}
    return operation


async def _predict(gateway: Gateway, context: Context, request: Request) -> Response:
    body = await json_body(request, LabelStudioPredictRequest)
    served = await gateway.served(context)
    version = await _version(served)
    if not body.tasks:
        return json_response(LabelStudioPredictions([]))
    labelling = _labelling(body.label_config)
    supports_relations = (await served.info()).supports_relations
    texts = [labelling.text_of(task) for task in body.tasks]
    options = ExtractionOptions(
        labels=dict(labelling.labels),
        relations=dict(labelling.relations) if supports_relations and labelling.relations else None,
    )
    answer = await gateway.run_batch(context, extraction_of([text or "" for text in texts], options))
    why = 'is the address of a text (valueType="url"), which is not fetched' if labelling.has_url else "is not a text"
    without_text = LabelStudioPrediction([], 0.0, version, f"data.{labelling.field} {why}")
    predictions = [
        without_text if text is None else _prediction(outcome, labelling, version)
        for text, outcome in zip(texts, answer.results, strict=True)
    ]
    return json_response(LabelStudioPredictions(predictions))


def _prediction(outcome: BatchResult, labelling: _Labelling, version: str) -> LabelStudioPrediction:
    extraction = outcome.result
    if extraction is None:
        return LabelStudioPrediction([], 0.0, version, outcome.error.message if outcome.error else None)
    # A relation in Label Studio connects two regions; GLiNER2 models may relate spans that are no entities.
    relations = [
        relation
        for relation in extraction.relations
        if None not in (relation.head.entity_idx, relation.tail.entity_idx)
    ]
    extraction = replace(extraction, relations=relations)
    indexes = range(len(extraction.entities) + len(extraction.relations))
    score = min((entity.score for entity in extraction.entities), default=0.0)
    return LabelStudioPrediction(LazySequence(partial(_annotation, labelling, extraction), indexes), score, version)


def _annotation(labelling: _Labelling, extraction: Extraction, index: int) -> dict[str, Any]:
    """The region of an entity, or a relation. index: counts the entities, and then the relations."""
    if index < len(extraction.entities):
        return _region(labelling, extraction, index)
    return _relation(extraction.relations[index - len(extraction.entities)])


def _region(labelling: _Labelling, extraction: Extraction, index: int) -> dict[str, Any]:
    entity = extraction.entities[index]
    value = {"start": entity.start, "end": entity.end, "text": entity.text, "labels": [entity.label]}
    return {
        "id": f"e{index}",
        "from_name": labelling.from_name,
        "to_name": labelling.to_name,
        "type": "labels",
        "value": value,
        "score": entity.score,
    }


def _relation(relation: Relation) -> dict[str, Any]:
    return {
        "type": "relation",
        "from_id": f"e{relation.head.entity_idx}",
        "to_id": f"e{relation.tail.entity_idx}",
        "direction": "right",
        "labels": [relation.relation],
    }


_FORMAT = WireFormat(
    error=MessageError,
    statuses={**STATUSES, "invalid_field": 400},
    examples={
        LabelStudioSetupRequest: {"project": "7.1700000000"},
        LabelStudioPredictRequest: {"tasks": [{"data": {"text": TEXT}}], "label_config": _CONFIG},
        LabelStudioWebhookRequest: {"action": "PROJECT_UPDATED"},
    },
)


def endpoints(_: GatewayOptions) -> list[Endpoint]:
    """The routes of an ML backend."""
    return [
        _FORMAT.post(
            "/setup",
            _setup,
            "label_studio_setup",
            "Label Studio's ML backend: the version of the model",
            request=LabelStudioSetupRequest,
            response=LabelStudioVersion,
            errors=POST_ERRORS,
        ),
        _FORMAT.post(
            "/predict",
            _predict,
            "label_studio_predict",
            "Label Studio's ML backend: pre-annotations of tasks",
            request=LabelStudioPredictRequest,
            response=LabelStudioPredictions,
            errors=(400, 404, 413, 415, 429, *COMMON_ERRORS, 504),
        ),
        _FORMAT.post(
            "/webhook",
            _webhook,
            "label_studio_webhook",
            "Label Studio's ML backend: events, which change nothing",
            request=LabelStudioWebhookRequest,
            response=LabelStudioAccepted,
            errors=POST_ERRORS,
            extra=_with_201,
        ),
        _FORMAT.get(
            "/versions",
            _versions,
            "label_studio_versions",
            "Label Studio's ML backend: the versions of the model",
            response=LabelStudioVersions,
        ),
        HEALTH,
    ]
