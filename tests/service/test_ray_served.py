"""The server on a Ray cluster of two nodes: answers, adapters, aborts, a lost node, scaling. Needs the extra `ray`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml
from saved_adapters import BODY, put, scores, zipped
from two_replicas import CONCURRENT, assert_adapters_are_on_both, assert_an_abort_reaches_both, assert_divided, replicas

from benchmark.server import free_port, started
from gliner_bento.ray.options import FOR_THROUGHPUT
from gliner_bento.replicas.local.replica import LocalReplica
from gliner_bento.settings import PROJECT_ROOT, Settings
from gliner_bento.tasks.extraction import ExtractionItem as Item

pytest.importorskip("ray.serve", reason="needs Ray: pip install -e '.[ray]'")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PATIENCE_S = 240.0
AFTER_THE_LOSS = 60
OF_A_BATCH = 600  # tokens: more than all short requests have
CONFIGURATION = PROJECT_ROOT / "deploy" / "ray" / "serve.yaml"
TEXTS = [
    "Bill Gates founded Microsoft in Albuquerque in 1975.",
    "Steve Jobs presented the iPhone in San Francisco.",
    "Marie Curie was born in Warsaw and worked in Paris.",
    "Ada Lovelace met Charles Babbage in London in 1833.",
]
LABELS = ["person", "company", "city", "year"]
LONG = {"texts": [" ".join(TEXTS * 40)] * 16, "labels": LABELS, "timeout_ms": 200_000}
MAX_QUEUED_TOKENS = 60_000  # one LONG fits, two do not

Entities = list[tuple[str, str, float]]


class Cluster:
    """Two nodes, in a program that takes orders."""

    def __init__(self, log: Path, environment: dict[str, str]) -> None:
        with log.open("w") as out:
            self._program = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("ray_cluster_program.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=out,
                text=True,
                env=environment,
            )
        assert self._program.stdin
        assert self._program.stdout
        self._orders, self._answers = self._program.stdin, self._program.stdout
        self.address = self._answers.readline().strip()
        assert self.address, log.read_text()

    def order(self, line: str) -> None:
        print(line, file=self._orders, flush=True)
        self._answers.readline()

    @property
    def pid(self) -> int:
        return self._program.pid

    def stop(self) -> None:
        self.order("stop")
        self._program.wait(60)
        self._orders.close()
        self._answers.close()


class Served:
    """The application in a cluster."""

    def __init__(self, cluster: Cluster, url: str) -> None:
        self.cluster = cluster
        self.http = httpx.Client(base_url=url, timeout=PATIENCE_S)

    def extract(self, text: str) -> httpx.Response:
        return self.http.post("/v1/extract", json={"text": text, "labels": LABELS})

    def replicas(self) -> list[dict[str, Any]]:
        return replicas(self.http)

    def ready(self) -> int:
        return sum(one["state"] == "ready" for one in self.replicas())

    def answers(self) -> bool:
        with suppress(httpx.TransportError):
            return self.http.get("/readyz").is_success
        return False

    def metric(self, name: str) -> float:
        lines = [line for line in self.http.get("/metrics").text.splitlines() if line.startswith(name)]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def report(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def until(holds: Callable[[], Any], what: str) -> None:
    latest_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < latest_s, what
        time.sleep(0.2)


@contextmanager
def serving(folder: Path, scaling: dict[str, Any] | None = None, **settings: Any) -> Iterator[Served]:
    """deploy/ray/serve.yaml on another port, with other settings and scaling (None: off), by Ray's own command."""
    port = free_port()
    content = yaml.safe_load(CONFIGURATION.read_text(encoding="utf-8"))
    content["http_options"] |= {"host": "127.0.0.1", "port": port}
    (application,) = content["applications"]
    common = {"dtype": "float32", "request_timeout_s": 300, "allow_anonymous": True}
    application["args"] = {**common, "disk_cache_dir": str(folder / "adapters"), **settings}
    (replica,) = application["deployments"]
    replica["ray_actor_options"] = {"num_cpus": 1, "num_gpus": 0}
    if scaling:
        replica["autoscaling_config"] |= scaling
    else:
        del replica["autoscaling_config"]
    if models := settings.get("models"):
        application["deployments"] = [{**replica, "name": f"{replica['name']}-{name}"} for name in models]
    (folder / "serve.yaml").write_text(yaml.safe_dump(content))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GLINER_")}
    environment.pop("PROMETHEUS_MULTIPROC_DIR", None)
    environment |= {"PYTHONPATH": str(PROJECT_ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
    environment |= {"RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "1", **FOR_THROUGHPUT}
    cluster = Cluster(folder / "cluster.log", environment)
    log = folder / "serve.log"
    command = [sys.executable, "-m", "ray.serve.scripts", "run", str(folder / "serve.yaml")]
    with log.open("w") as out:
        server = subprocess.Popen(
            [*command, "--address", cluster.address], env=environment, stdout=out, stderr=subprocess.STDOUT
        )
    served = Served(cluster, f"http://127.0.0.1:{port}")
    try:
        until(lambda: served.answers() or server.poll() is not None, "it never was ready")
        assert server.poll() is None, log.read_text()[-4000:]
        yield served
    finally:
        served.http.close()
        server.kill()
        server.wait()
        cluster.stop()


@pytest.fixture(scope="module")
def expected() -> list[Entities]:
    """The answers of the plain engine and scheduler, in this process."""
    found = local_answers(Settings(dtype="float32", warmup_iterations=0))
    assert all(found)
    return found


def local_answers(settings: Settings) -> list[Entities]:
    replica = LocalReplica.load(settings)
    labels = {label: label for label in LABELS}
    futures = replica.scheduler.submit_many([Item(text, labels) for text in TEXTS], request_id="expected")
    found = [[(one.text, one.label, one.score) for one in future.result(PATIENCE_S).entities] for future in futures]
    replica.close()
    return found


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    settings = {"num_instances": 2, "enable_lora": True, "max_queued_tokens": MAX_QUEUED_TOKENS}
    with serving(tmp_path_factory.mktemp("ray"), **settings) as served:
        until(lambda: served.ready() == 2, "the second replica was never ready")
        yield served


def is_right(answer: httpx.Response, entities: Entities) -> bool:
    given = [(one["text"], one["label"], one["score"]) for one in answer.json()["entities"]]
    same = [one[:2] for one in given] == [one[:2] for one in entities]
    return same and all(abs(one[2] - other[2]) < 1e-4 for one, other in zip(given, entities, strict=True))


class Load:
    """CONCURRENT clients that send TEXTS until the context ends. outcomes: how often each status, and "wrong"."""

    def __init__(self, served: Served, expected: list[Entities]) -> None:
        self.outcomes: Counter[Any] = Counter()
        self._served, self._expected = served, expected
        self._stopped = threading.Event()
        self._pool = ThreadPoolExecutor(CONCURRENT)
        self._clients = [self._pool.submit(self._send, number) for number in range(CONCURRENT)]

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._pool.shutdown()
        for client in self._clients:
            client.result()

    @property
    def answered(self) -> int:
        return sum(self.outcomes.values())

    def _send(self, number: int) -> None:
        while not self._stopped.is_set():
            number = (number + 1) % len(TEXTS)
            answer = self._served.extract(TEXTS[number])
            right = answer.status_code != 200 or is_right(answer, self._expected[number])
            self.outcomes[answer.status_code if right else "wrong"] += 1


def test_answers_are_those_of_the_plain_engine(served: Served, expected: list[Entities]) -> None:
    assert all(is_right(served.extract(text), entities) for text, entities in zip(TEXTS, expected, strict=True))
    body = {"text": " ".join(TEXTS * 20), "labels": LABELS}
    lines = served.http.post("/v1/extract/stream", json=body).text.splitlines()
    whole = served.http.post("/v1/extract", json=body).json()["entities"]
    streamed = [json.loads(line)["entity"] for line in lines[:-1]]
    assert [(one["start"], one["label"]) for one in streamed] == [(one["start"], one["label"]) for one in whole]
    assert len(streamed) > 100


def test_both_replicas_work_and_metrics_are_those_of_all(served: Served, expected: list[Entities]) -> None:
    with Load(served, expected) as load:
        until(lambda: load.answered >= 60, "nothing is answered")
    assert set(load.outcomes) == {200}
    replicas = served.replicas()
    assert min(one["requests"] for one in replicas) > 10
    for one in replicas:
        assert served.metric(f'gliner_items_total{{model="demo",outcome="completed",replica="{one["name"]}"}}') > 10
    assert served.metric('gliner_ready{model="demo"} ') == 1


def test_requests_are_divided(served: Served) -> None:
    assert_divided(served.http)


def test_an_adapter_is_on_both(served: Served, adapters: dict[str, Path]) -> None:
    assert_adapters_are_on_both(served.http, adapters)


def outstanding(served: Served) -> int:
    return sum(one["outstanding_tokens"] for one in served.replicas())


def test_an_abort_reaches_both(served: Served) -> None:
    assert_an_abort_reaches_both(served.http, LONG["texts"], LABELS)


def test_a_full_server_refuses(served: Served) -> None:
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(served.http.post, "/v1/extract/batch", json={**LONG, "request_id": "long"})
        until(lambda: outstanding(served) > 0, "it never began")
        refused = served.http.post("/v1/extract/batch", json=LONG)
        served.http.post("/v1/requests/long/abort")
        asked.result()
    assert refused.status_code == 429
    assert int(refused.headers["Retry-After"]) >= 1
    assert refused.json()["error"]["code"] == "queue_full"


def test_a_client_that_leaves_aborts_its_items(served: Served) -> None:
    name = 'gliner_items_total{model="demo",outcome="aborted"'
    before = served.metric(name)
    with pytest.raises(httpx.ReadTimeout):
        served.http.post("/v1/extract/batch", json=LONG, timeout=1.0)
    until(lambda: served.metric(name) > before, "nothing was aborted")
    until(lambda: outstanding(served) == 0, "something still runs")


def test_a_lost_node_costs_nobody_an_answer_and_is_replaced(served: Served, expected: list[Entities]) -> None:
    """Runs last of those with this cluster."""
    body = {**LONG, "texts": LONG["texts"][:6]}
    with ThreadPoolExecutor(2) as pool, Load(served, expected) as load:
        until(lambda: load.answered >= 30, "nothing is answered")
        batches = [pool.submit(served.http.post, "/v1/extract/batch", json=body) for _ in range(2)]
        until(lambda: min(one["outstanding_tokens"] for one in served.replicas()) > OF_A_BATCH, "one has no batch")
        before = load.answered
        served.cluster.order("remove")
        until(lambda: load.answered >= before + AFTER_THE_LOSS, "nothing is answered after the loss")
    repeated_on, other = ([one["result"]["entities"] for one in each.result().json()["results"]] for each in batches)
    assert [[one["start"] for one in each] for each in repeated_on] == [
        [one["start"] for one in each] for each in other
    ]
    report(f"{CONCURRENT} clients, one of two nodes removed: {dict(load.outcomes)}")
    assert set(load.outcomes) == {200}
    repeated = served.metric("gliner_repeated_items_total ")
    report(f"items that were repeated: {repeated:g}")
    assert repeated >= len(body["texts"])
    until(lambda: served.ready() == 1, "the lost replica is shown as ready")
    served.cluster.order("add")
    until(lambda: served.ready() == 2, "no replica was started on the new node")


def test_replicas_follow_the_load(tmp_path: Path, expected: list[Entities]) -> None:
    scaling = {"max_replicas": 2, "upscale_delay_s": 1, "downscale_delay_s": 10, "look_back_period_s": 5}
    scaling["policy"] = {
        "policy_function": "gliner_bento.replicas.ray.scaling:WaitingTokensPolicy",
        "policy_kwargs": {"target_waiting_tokens": 50},
    }
    with serving(tmp_path, scaling, num_instances=1, max_instances=2, max_batch_size=4) as served:  # so that some wait
        assert served.ready() == 1
        began_s = time.monotonic()
        with Load(served, expected) as load:
            until(lambda: served.ready() == 2, "no second replica was started")
            up_s = time.monotonic() - began_s
            answered = load.answered
            until(lambda: load.answered >= answered + 60, "nothing is answered")
            assert min(one["requests"] for one in served.replicas()) > 0
        began_s = time.monotonic()
        until(lambda: served.ready() == 1, "no replica was stopped")
        report(f"second replica ready after {up_s:.0f} s of load, gone {time.monotonic() - began_s:.0f} s after it")
        assert set(load.outcomes) == {200}
        assert is_right(served.extract(TEXTS[0]), expected[0])


def command_on_ray(*arguments: str) -> tuple[list[str], dict[str, str]]:
    """`gliner-bento serve --backend ray` and its environment."""
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    environment.pop("PROMETHEUS_MULTIPROC_DIR", None)
    command = [sys.executable, "-m", "gliner_bento.cli", "serve", "--backend", "ray", *arguments]
    return command, environment | {"PYTHONPATH": str(PROJECT_ROOT)}


def test_the_command_answers_and_ends_when_what_runs_is_answered(tmp_path: Path, expected: list[Entities]) -> None:
    command, environment = command_on_ray("--port", "{port}", "--dtype", "float32", "--shutdown-timeout-s", "200")
    started_server = started(command, cwd=tmp_path, log=tmp_path / "log", env=environment, start_s=PATIENCE_S)
    with started_server as server, httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
        answer = http.post("/v1/extract", json={"text": TEXTS[0], "labels": LABELS})
        assert is_right(answer, expected[0])
        assert http.get("/metrics").text.count('gliner_items_total{model="demo",outcome="completed"') == 1
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(http.post, "/v1/extract/batch", json={**LONG, "texts": LONG["texts"][:4]})
            until(lambda: http.get("/v1/replicas").json()["replicas"][0]["outstanding_tokens"] > 0, "it never began")
            os.kill(server.pid, signal.SIGTERM)
            results = asked.result().json()["results"]
        assert [one["error"] for one in results] == [None] * 4
        assert psutil.Process(server.pid).wait(PATIENCE_S) in (0, None)
    written = (tmp_path / "log").read_text()
    assert "Traceback" not in written
    assert f"gliner-bento: ready on {server.url}\n  playground  {server.url}/playground\n" in written, "as without Ray"


@pytest.mark.parametrize(
    "models",
    [
        ["--model", "FOLDER"],
        ["--models", "broken=FOLDER,demo=models/demo", "--model-settings", '{"broken": {"required": true}}'],
    ],
    ids=["the only one", "a required one"],
)
def test_a_model_that_does_not_load_ends_the_command_with_one_line(tmp_path: Path, models: list[str]) -> None:
    (tmp_path / "gliner_config.json").write_text("{}")
    arguments = [one.replace("FOLDER", str(tmp_path)) for one in models]
    command, environment = command_on_ray("--port", str(free_port()), *arguments)
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("gliner-bento: ")
    assert "has no weights" in last


@pytest.fixture(scope="module")
def random(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small checkpoint with random weights."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PROJECT_ROOT / "tests" / "contract"))
        from checkpoints import tiny_checkpoint

        return tiny_checkpoint(tmp_path_factory.mktemp("random"), "span", backbone="bert", seed=1)


def models_of(random: Path) -> dict[str, Any]:
    """Two models, of which one has settings of its own."""
    return {"general": "models/demo", "random": {"model": str(random), "max_labels": len(LABELS)}}


def assert_models_are_separate(
    http: httpx.Client, pid: int, random: Path, expected: Sequence[Entities], adapter: Path
) -> None:
    """Answers, limits, adapters and failures of each model are its own. pid: of a parent of the replicas."""
    own = {"general": expected, "random": local_answers(Settings(model=str(random), dtype="float32"))}
    assert any(own["random"])

    def answered(model: str) -> bool:
        bodies = [{"text": text, "labels": LABELS, "model": model} for text in TEXTS]
        answers = [http.post("/v1/extract", json=body) for body in bodies]
        return all(is_right(answer, entities) for answer, entities in zip(answers, own[model], strict=True))

    assert answered("general")
    assert answered("random")
    unknown = http.post("/v1/extract", json={**BODY, "model": "other"})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
    listed = {one["id"]: one["state"] for one in http.get("/v1/models").json()["data"]}
    assert {name: listed[name] for name in own} == dict.fromkeys(own, "ready")
    more = {"text": TEXTS[0], "labels": [*LABELS, "more"]}
    assert http.post("/v1/extract", json=more).status_code == 200
    assert http.post("/v1/extract", json=more | {"model": "random"}).json()["error"]["param"] == "labels"
    changed = http.post("/v1/models/random/unload")
    assert (changed.status_code, changed.json()["error"]["code"]) == (501, "not_supported")

    assert put(http, "mine", zipped(adapter), model="general").status_code == 201
    installed = [http.get("/v1/adapters", params={"model": name}).json()["adapters"] for name in own]
    assert [[one["id"] for one in adapters] for adapters in installed] == [["mine"], []]
    assert scores(http, "mine") != scores(http)
    refused = http.post("/v1/extract", json={**BODY, "model": "random", "adapter_id": "mine"})
    assert refused.json()["error"]["code"] == "adapter_not_found"

    metrics = http.get("/metrics").text
    for name in own:
        (one,) = http.get("/v1/replicas", params={"model": name}).json()["replicas"]
        assert f'gliner_items_total{{model="{name}",outcome="completed",replica="{one["name"]}"}}' in metrics
    (killed,) = (one for one in psutil.Process(pid).children(recursive=True) if is_replica_of("general", one))
    os.kill(killed.pid, signal.SIGKILL)
    assert answered("random")
    assert not http.get("/readyz").is_success
    assert answered("general"), "Ray starts another replica"


def is_replica_of(model: str, process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return " ".join(process.cmdline()).strip().endswith(f":GLiNERReplica-{model}")
    return False


def test_the_command_serves_each_model_from_replicas_of_its_own(
    tmp_path: Path, random: Path, expected: list[Entities], adapters: dict[str, Path]
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "gliner_config.json").write_text("{}")
    models = {**models_of(random), "broken": str(broken)}
    common = {"dtype": "float32", "enable_lora": True, "disk_cache_dir": str(tmp_path / "adapters")}
    file = tmp_path / "configuration.yaml"
    file.write_text(yaml.safe_dump({"gliner": {**common, "models": models, "request_timeout_s": 300}}, sort_keys=False))
    command, environment = command_on_ray("--port", "{port}", "--config", str(file))
    started_server = started(command, cwd=tmp_path, log=tmp_path / "log", env=environment, start_s=PATIENCE_S)
    with started_server as server, httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
        failed = http.post("/v1/extract", json={**BODY, "model": "broken"})
        assert (failed.status_code, failed.json()["error"]["code"]) == (503, "model_not_loaded")
        assert "has no weights" in failed.json()["error"]["message"]
        assert_models_are_separate(http, server.pid, random, expected, adapters["one"])


def test_a_config_file_serves_each_model_from_replicas_of_its_own(
    tmp_path: Path, random: Path, expected: list[Entities], adapters: dict[str, Path]
) -> None:
    with serving(tmp_path, models=models_of(random), enable_lora=True) as served:
        assert_models_are_separate(served.http, served.cluster.pid, random, expected, adapters["one"])
