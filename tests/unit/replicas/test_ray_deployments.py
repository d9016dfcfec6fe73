"""A deployment for each model: which of them serve, and what happens if one does not start. Starts no cluster."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest
from replica_calls import run

from gliner_bento.commands import RemoveModel
from gliner_bento.errors import NotReady, NotSupported, StartupError
from gliner_bento.settings import Settings

pytest.importorskip("ray", reason="needs Ray: pip install -e '.[ray]'")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ray's own
    from ray.exceptions import RayActorError

    from gliner_bento.ray import app, deployments
    from gliner_bento.ray.deployments import DeployedModels, deploy

FAILURE = "Traceback ...\ngliner_bento.errors.StartupError: it has no weights\n"
REASON = "it has no weights"


class Ray:
    """What is used of `ray.serve`. failed: models whose deployments fail. polls: of statuses until all have ended."""

    RunTarget = SimpleNamespace

    def __init__(self, failed: str, polls: int = 0) -> None:
        self.failed, self.polls = failed, polls
        self.asked = 0

    def run_many(self, targets: list[Any], **_: Any) -> list[Any]:
        return [handle(one.name[-1]) for one in targets]

    def status(self) -> Any:
        self.asked += 1
        state = "DEPLOYING" if self.asked <= self.polls else "RUNNING"
        statuses = {name: ("DEPLOY_FAILED" if name in self.failed else "HEALTHY") for name in "ab"}
        return SimpleNamespace(
            applications={
                f"app-{name}": SimpleNamespace(
                    status=state, deployments={f"GLiNERReplica-{name}": SimpleNamespace(status=one, message=FAILURE)}
                )
                for name, one in statuses.items()
            }
        )


def handle(name: str) -> Any:
    return SimpleNamespace(app_name=f"app-{name}", deployment_name=f"GLiNERReplica-{name}")


def settings(**own: Any) -> Settings:
    return Settings(models="a=owner/name,b=owner/other", model_settings=own)


def deployed(monkeypatch: pytest.MonkeyPatch, failed: str, polls: int = 0, **own: Any) -> Any:
    monkeypatch.setattr(deployments, "serve", Ray(failed, polls))
    monkeypatch.setattr(
        deployments, "replica_applications", lambda given: dict.fromkeys(deployments.replica_settings(given))
    )
    return deploy(settings(**own), "app")


def test_a_model_that_does_not_start_does_not_stop_the_others_unless_it_is_required(monkeypatch):
    assert list(deployed(monkeypatch, failed="a", polls=3)) == ["a", "b"]
    assert deployments.serve.asked > 3
    assert list(deployed(monkeypatch, failed="b", a={"required": True})) == ["a", "b"]
    for failed, own in (("b", {"b": {"required": True}}), ("ab", {})):
        with pytest.raises(StartupError, match=f"^{REASON}$"):
            deployed(monkeypatch, failed, **own)


def test_rows_are_those_of_the_settings_and_ray_is_asked_only_about_models_without_replicas(monkeypatch, caplog):
    async def scene() -> None:
        fleets: Any = {"a": SimpleNamespace(replicas={"x": None}), "b": SimpleNamespace(replicas={})}
        own = {"a": {"max_labels": 3, "pinned": True}, "b": {"required": True}}
        models = DeployedModels(settings(**own), {name: handle(name) for name in fleets}, fleets)
        rows = await models.rows()
        assert await models.rows() == rows
        assert caplog.messages == [f"the model b could not be loaded: {REASON}"]
        assert [(row.name, row.state, row.reason) for row in rows] == [("a", "ready", None), ("b", "failed", REASON)]
        assert [(row.pinned, row.required, row.limits.get("max_labels")) for row in rows] == [
            (True, False, 3),
            (False, True, None),
        ]
        monkeypatch.setattr(serve, "status", unreachable)
        with pytest.raises(NotReady, match="Ray does not answer"):
            await models.rows()
        fleets["b"].replicas["y"] = None
        assert [row.state for row in await models.rows()] == ["ready", "ready"]
        with pytest.raises(NotSupported, match="on Ray cannot be changed"):
            await models.apply(RemoveModel("a", 1.0))

    def unreachable() -> None:
        raise RayActorError

    serve = Ray("ab")
    monkeypatch.setattr(deployments, "serve", serve)
    run(scene)


def test_the_arguments_of_a_config_file_may_have_settings_of_each_model(monkeypatch):
    monkeypatch.setattr(app, "application", lambda settings: settings)
    models = {"a": "owner/name", "b": {"model": "owner/other", "max_labels": 3}}
    built: Any = app.build({"models": models, "allow_anonymous": True})
    assert built.models == ("a=owner/name", "b=owner/other")
    assert built.model_settings == {"b": {"max_labels": 3}}
    assert app.build({"models": {"a": "owner/name"}, "allow_anonymous": True}).models == ("a=owner/name",)
