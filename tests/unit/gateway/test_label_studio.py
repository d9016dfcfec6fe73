"""Label Studio's ML backend: what a project's tasks get, and the errors."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from gliner_bento.errors import InvalidField
from gliner_bento.gateway.compat import label_studio

CONFIG = """
<View>
  <!-- a comment -->
  <Relations><Relation value="works at"/></Relations>
  <Labels name="label" toName="text">
    <Label value="person"/><Label value="firm" hint="a company" alias="ORG"/>
  </Labels>
  <Text name="text" value="$body"/>
</View>
"""


def post(client, path, **kwargs):
    return asyncio.run(client.post(path, **kwargs))


def predict(client, *data, config=CONFIG):
    tasks = [{"id": number, "data": one, "project": 7} for number, one in enumerate(data)]
    body = {"tasks": tasks, "label_config": config, "project": "7.1", "params": {"login": None}}
    return post(client, "/predict", json=body)


def test_the_labels_come_from_the_configuration(client, replica):
    (prediction,) = predict(client, {"body": "Ada met Charles"}).json()["results"]
    (item,) = replica.calls[0][0]
    assert item.labels == {"person": "person", "ORG": "a company"}
    assert item.relations == {"works at": "works at"}
    regions = [one for one in prediction["result"] if one["type"] == "labels"]
    assert regions[0] == {
        "id": "e0",
        "from_name": "label",
        "to_name": "text",
        "type": "labels",
        "value": {"start": 0, "end": 3, "text": "Ada", "labels": [regions[0]["value"]["labels"][0]]},
        "score": regions[0]["score"],
    }
    assert prediction["score"] == min(region["score"] for region in regions)
    ids = {region["id"] for region in regions}
    relations = [one for one in prediction["result"] if one["type"] == "relation"]
    assert relations
    assert {one[end] for one in relations for end in ("from_id", "to_id")} <= ids
    assert {(one["direction"], *one["labels"]) for one in relations} == {("right", "works at")}


def test_a_batch_has_one_prediction_per_task_in_order_and_a_failure_is_its_own(client):
    results = predict(client, {"body": "Ada"}, {"text": "no body"}, {"body": "x" * 101}).json()["results"]
    assert [bool(one["result"]) for one in results] == [True, False, False]
    assert results[1]["error"] == "data.body is not a text"
    assert "101 characters; the limit is 100" in results[2]["error"]
    assert {one["model_version"] for one in results} == {
        post(client, "/setup", json={"project": "7.1", "access_token": "secret"}).json()["model_version"]
    }


def test_no_tasks_have_no_predictions(client):
    assert predict(client).json() == {"results": []}


def test_the_address_of_a_text_is_not_read_as_the_text(client):
    config = """<View><Labels name="label" toName="t"><Label value="person"/></Labels>
    <Text name="t" value="$address" valueType="{}"/></View>"""
    task = {"data": {"address": "s3://bucket/Ada Lovelace.txt"}}
    for kind, error in (
        ("text", None),
        ("url", 'data.address is the address of a text (valueType="url"), which is not'),
    ):
        body = {"tasks": [task], "label_config": config.format(kind)}
        (result,) = asyncio.run(client.request("POST", "/predict", json=body)).json()["results"]
        assert bool(result["result"]) is (error is None)
        assert str(result["error"]).startswith(str(error))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("", "label_config: not valid XML"),
        ("<View><Labels", "label_config: not valid XML"),
        ("<View/>", "label_config: needs <Labels>"),
        ('<View><Labels name="l" toName="i"><Label value="a"/></Labels><Image name="i" value="$i"/></View>', "needs"),
        ('<!DOCTYPE a [<!ENTITY x "y">]><View>&x;</View>', "label_config: declarations are not supported"),
    ],
)
def test_a_configuration_without_labels_of_a_text_is_refused(client, config, message):
    response = predict(client, {"body": "Ada"}, config=config)
    assert response.status_code == 400
    assert message in response.json()["error"]


def test_a_configuration_takes_time_in_proportion_to_its_length(monkeypatch):
    """Counted in elements that are visited: a configuration of 1 MB took minutes."""
    visited = 0

    class Counted(ElementTree.Element):
        def iter(self, tag=None):
            nonlocal visited
            for one in super().iter():
                visited += 1
                if tag in (None, one.tag):
                    yield one

    def parse(config):
        return ElementTree.fromstring(config, ElementTree.XMLParser(target=ElementTree.TreeBuilder(Counted)))

    with pytest.raises(InvalidField, match="the limit is"):
        label_studio._labelling(f"<View>{' ' * 2**18}</View>")
    many = 400
    flat = '<Labels toName="text"><Relations/></Labels>' * many
    nested = '<Labels toName="text">' * many + "</Labels>" * many
    monkeypatch.setattr(label_studio, "ElementTree", SimpleNamespace(**vars(ElementTree) | {"fromstring": parse}))
    for tags in (flat, nested):
        with pytest.raises(InvalidField, match="label_config"):
            label_studio._labelling(f'<View>{tags}<Text name="text" value="$body"/></View>')
    assert visited < 20 * many


@pytest.mark.parametrize("path", ["/setup", "/predict", "/webhook"])
@pytest.mark.parametrize("content", [b"{", b"[]", b'{"tasks": 1, "project": [], "action": 5}'])
def test_a_wrong_body_is_a_bad_request(client, path, content):
    response = post(client, path, content=content, headers={"Content-Type": "application/json"})
    assert response.status_code == 400
    assert response.json()["error"]


@pytest.mark.parametrize(("action", "status"), [("ANNOTATION_CREATED", 201), ("START_TRAINING", 201), ("ELSE", 200)])
def test_events_are_accepted(client, action, status):
    assert post(client, "/webhook", json={"action": action, "project": {"id": 1}}).status_code == status


def test_the_versions_are_the_one_that_is_served(client):
    versions = asyncio.run(client.get("/versions")).json()["versions"]
    assert versions == [post(client, "/setup", json={}).json()["model_version"]]
    assert asyncio.run(client.get("/health")).json() == {"status": "UP"}
