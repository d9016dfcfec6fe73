"""Label Studio's ML backend (label-studio 1.23): pre-annotations of a project's tasks.

A project's labelling configuration has the labels and relations. Nothing of a request is kept: no project, no token.
A task that fails gets an empty result with its `error`, so that the others keep theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal
from xml.etree import ElementTree

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from gliner_bento.errors import InvalidField
from gliner_bento.gateway.endpoint import READ_ERRORS, Endpoint, json_response
from gliner_bento.gateway.error_body import STATUSES
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.json_parts import LazySequence
from gliner_bento.gateway.models import short_name
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.shared_routes import HEALTH, MessageError
from gliner_bento.gateway.wire_format import POST_ERRORS, WireFormat
from gliner_bento.tasks.extraction import TEXT, BatchResult, Extraction, ExtractionOptions, Relation, extraction_of
from gliner_bento.tasks.fields import Elements

_ACTIONS = {"ANNOTATION_CREATED", "ANNOTATION_UPDATED", "ANNOTATION_DELETED", "PROJECT_UPDATED", "START_TRAINING"}
_MAX_CONFIG_CHARS = 2**18
_CONFIG = (
    '<View><Labels name="label" toName="text"><Label value="person"/><Label value="organization"/></Labels>'
    '<Text name="text" value="$text"/></View>'
)


class _Ignoring(BaseModel):
    """Label Studio sends more fields than a backend needs."""

    model_config = ConfigDict(strict=True, hide_input_in_errors=True)


class LabelStudioSetupRequest(_Ignoring):
    """The body of `POST /setup`."""

    project: str | int | None = None


class LabelStudioTask(_Ignoring):
    """A task: its text is in the field of `data` that the labelling configuration names."""

    data: dict[str, Any]


class LabelStudioPredictRequest(_Ignoring):
    """The body of `POST /predict`."""

    tasks: Elements[list[LabelStudioTask]]
    label_config: str = Field(description="The project's labelling configuration, in XML.")


class LabelStudioWebhookRequest(_Ignoring):
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
    """The regions and relations of a task. score: the lowest of its regions; 0 if there are none."""

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
    """What a labelling configuration asks for. from_name, to_name: of its tags; field: of a task's data."""

    from_name: str
    to_name: str
    field: str
    labels: Mapping[str, str]
    relations: Mapping[str, str]

    def text_of(self, task: LabelStudioTask) -> str | None:
        text = task.data.get(self.field)
        return text if isinstance(text, str) else None


def _labelling(config: str) -> _Labelling:
    """Raises InvalidField. A declaration of entities is refused: they could expand without bound. Takes time in
    proportion to the length."""
    if len(config) > _MAX_CONFIG_CHARS:
        message = f"label_config: {len(config)} characters; the limit is {_MAX_CONFIG_CHARS}"
        raise InvalidField(message, param="label_config")
    if "<!" in config.replace("<!--", ""):
        raise InvalidField("label_config: declarations are not supported", param="label_config")
    try:
        root = ElementTree.fromstring(config)
    except ElementTree.ParseError as error:
        raise InvalidField(f"label_config: not valid XML: {error}", param="label_config") from None
    texts = {text.get("name"): text.get("value", "") for text in root.iter("Text")}
    for control in root.iter("Labels"):
        if control.find(".//Labels") is not None:
            raise InvalidField("label_config: <Labels> within <Labels>", param="label_config")
        if (to_name := control.get("toName")) in texts:
            labels = _named(control, "Label")
            if labels:
                relations = _named(root, "Relation")
                field = texts[to_name].removeprefix("$")
                return _Labelling(control.get("name", ""), str(to_name), field, labels, relations)
    raise InvalidField("label_config: needs <Labels> with a <Label>, toName a <Text>", param="label_config")


def _named(parent: ElementTree.Element, tag: str) -> dict[str, str]:
    """For each value in the annotations, the text that the model reads: its hint if there is one."""
    tags = [one for one in parent.iter(tag) if one.get("value")]
    return {one.get("alias") or one.attrib["value"]: one.get("hint") or one.attrib["value"] for one in tags}


async def _version(gateway: Gateway) -> str:
    model, options = await gateway.models.default.info(), gateway.options
    thresholds = f"{options.default_threshold:g}-{options.default_relation_threshold:g}"
    return "-".join(filter(None, (short_name(model.model), model.fingerprint, thresholds)))


async def _setup(gateway: Gateway, request: Request) -> Response:
    LabelStudioSetupRequest.model_validate_json(await request.body() or b"{}")
    return json_response(LabelStudioVersion(await _version(gateway)))


async def _versions(gateway: Gateway, _: Request) -> Response:
    return json_response(LabelStudioVersions([await _version(gateway)]))


async def _webhook(_: Gateway, request: Request) -> Response:
    """The model is not trained by annotations: events are accepted, and change nothing."""
    event = LabelStudioWebhookRequest.model_validate_json(await request.body() or b"{}")
    return json_response(LabelStudioAccepted(), 201 if event.action in _ACTIONS else 200)


async def _predict(gateway: Gateway, request: Request) -> Response:
    body = LabelStudioPredictRequest.model_validate_json(await request.body() or b"{}")
    version = await _version(gateway)
    if not body.tasks:
        return json_response(LabelStudioPredictions([]))
    labelling = _labelling(body.label_config)
    relates = (await gateway.models.default.info()).supports_relations
    texts = [labelling.text_of(task) for task in body.tasks]
    options = ExtractionOptions(
        labels=dict(labelling.labels),
        relations=dict(labelling.relations) if relates and labelling.relations else None,
    )
    answer = await gateway.run_batch(extraction_of([text or "" for text in texts], options))
    predictions = [_prediction(one, labelling, version) for one in answer.results]
    missing = LabelStudioPrediction([], 0.0, version, f"data.{labelling.field} is not a text")
    pairs = zip(texts, predictions, strict=True)
    return json_response(LabelStudioPredictions([missing if text is None else one for text, one in pairs]))


def _prediction(outcome: BatchResult, labelling: _Labelling, version: str) -> LabelStudioPrediction:
    found = outcome.result
    if found is None:
        return LabelStudioPrediction([], 0.0, version, outcome.error.message if outcome.error else None)
    # Label Studio relates regions; GLiNER2 models relate other spans too.
    related = [one for one in found.relations if None not in (one.head.entity_idx, one.tail.entity_idx)]
    found = replace(found, relations=related)
    indices = range(len(found.entities) + len(found.relations))
    score = min((entity.score for entity in found.entities), default=0.0)
    return LabelStudioPrediction(LazySequence(partial(_annotation, labelling, found), indices), score, version)


def _annotation(labelling: _Labelling, found: Extraction, index: int) -> dict[str, Any]:
    """Entities come first."""
    number = index - len(found.entities)
    return _region(labelling, found, index) if number < 0 else _relation(found.relations[number])


def _region(labelling: _Labelling, found: Extraction, number: int) -> dict[str, Any]:
    entity = found.entities[number]
    value = {"start": entity.start, "end": entity.end, "text": entity.text, "labels": [entity.label]}
    return {
        "id": f"e{number}",
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
    """The routes of a backend."""
    return [
        _FORMAT.post(
            "/setup",
            _setup,
            "label_studio_setup",
            "Label Studio's ML backend: the version of the model",
            request=LabelStudioSetupRequest,
            answer=LabelStudioVersion,
            errors=POST_ERRORS,
        ),
        _FORMAT.post(
            "/predict",
            _predict,
            "label_studio_predict",
            "Label Studio's ML backend: pre-annotations of tasks",
            request=LabelStudioPredictRequest,
            answer=LabelStudioPredictions,
            errors=(400, 413, 415, 429, *READ_ERRORS, 504),
        ),
        _FORMAT.post(
            "/webhook",
            _webhook,
            "label_studio_webhook",
            "Label Studio's ML backend: events, which change nothing",
            request=LabelStudioWebhookRequest,
            answer=LabelStudioAccepted,
            errors=POST_ERRORS,
        ),
        _FORMAT.get(
            "/versions",
            _versions,
            "label_studio_versions",
            "Label Studio's ML backend: the versions of the model",
            answer=LabelStudioVersions,
        ),
        HEALTH,
    ]
