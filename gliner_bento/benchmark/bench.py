"""One benchmark: its plan, its folder, what it has measured so far, and how things are measured.

What is measured in which order is sections.py's; what it looks like afterwards report.py's.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gliner_bento.benchmark import job, workload
from gliner_bento.benchmark.answers import Found, found, judged, own_share
from gliner_bento.benchmark.job import NotMeasured
from gliner_bento.benchmark.load import Run, closed_loop, open_loop
from gliner_bento.benchmark.machine import versions
from gliner_bento.benchmark.rows import Row
from gliner_bento.benchmark.server import Server, started
from gliner_bento.setting_names import env_name
from gliner_bento.settings import PROJECT_ROOT, Settings, usable_cores

DEMO = PROJECT_ROOT / "models" / "demo"
BUILD = Path("build") / "bench"
FOREVER_S = 1e9
_STAMP = "made.json"


@dataclass(frozen=True)
class Plan:
    """How much is measured.

    adapters: few, many, and all that there are. adapter_texts: different texts that they are asked for.
    document_words: of a long text. paragraphs: of another one, for the bundled model.
    bundled: with the small model of the repository in place of the large random ones.
    """

    seconds: float = 15.0
    warm_up_s: float = 5.0
    concurrencies: tuple[int, ...] = (1, 8, 32)
    texts: int = 256
    in_process_s: float = 10.0
    in_process_texts: int = 96
    settings_s: float = 8.0
    soak_requests: int = 20_000
    adapters: tuple[int, int, int] = (8, 64, 256)
    adapter_texts: int = 64
    adapter_requests: int = 2000
    cold_adapters: int = 20
    document_words: int = 50_000
    paragraphs: int = 50
    bundled: bool = False

    @classmethod
    def of(cls, seconds: float) -> Plan:
        """A plan whose loads take `seconds` each, and all else in proportion."""
        return cls(seconds, seconds / 3, in_process_s=seconds * 2 / 3, settings_s=seconds / 2)


QUICK = Plan(1.0, 0.5, (1, 4), 12, 0.5, 6, 0.5, 60, (4, 4, 24), 6, 40, 4, 3000, 6, bundled=True)


@dataclass(frozen=True, slots=True)
class Adapters:
    """root: with a folder in PEFT's format for each. layers: the model's that each kind changes."""

    root: Path
    layers: dict[str, list[str]]


@dataclass(slots=True)
class Bench:
    """A run of the benchmark into `folder`."""

    plan: Plan
    folder: Path
    models: Path
    points: list[dict[str, Any]] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)

    # What is asked of which model

    def checkpoint(self, family: str) -> Path:
        """The folder of a checkpoint (ner, relex, bi), built when it is not there or of another make.

        For relations it is the bundled model: gliner scores every pair of proposed spans, and random weights propose so
        many that it fails.
        """
        if self.plan.bundled or family == "relex":
            if family == "bi":
                raise NotMeasured("the bundled model is no bi-encoder")
            return DEMO
        make = hashlib.sha256((job.JOBS / "checkpoints.py").read_bytes()).hexdigest()[:12]
        bodies = self.bodies(family, 24, seed=1)
        folder = self.models / f"{family}-{make}"
        return _made(folder, "checkpoints", what="build", family=family, tokenizer=str(DEMO), bodies=bodies)

    def exported(self) -> Path:
        """The folder with the ONNX export of the entity model."""
        model = self.checkpoint("ner")
        return _made(self.models / f"{model.name}-onnx", "checkpoints", what="export", model=str(model.resolve()))

    def adapters(self, model: Path) -> Adapters:
        """LoRA adapters of a model, made when they are not there: all of the plan's for queries and values, a few for
        values alone and for all linear layers of the encoder."""
        few, _, every = self.plan.adapters
        counts = {"attention": every, "values": few, "linear": few}
        make = hashlib.sha256((job.JOBS / "adapters.py").read_bytes() + json.dumps(counts).encode()).hexdigest()[:12]
        folder = _made(self.models / f"{model.name}-adapters-{make}", "adapters", what="make",
                       model=str(model.resolve()), counts=counts)  # fmt: skip
        return Adapters(folder.resolve() / "root", json.loads((folder / _STAMP).read_text("utf-8"))["layers"])

    def bodies(self, family: str, count: int, seed: int = 0) -> list[workload.Body]:
        """Bodies of the mixed workload for a model."""
        bodies = workload.mixed(count, seed)
        return workload.with_relations(bodies) if self.plan.bundled or family == "relex" else bodies

    def expected(self, model: Path, bodies: Sequence[workload.Body]) -> list[Found]:
        """What gliner's own forward answers in float32 to each body alone, on torch; kept for the next run."""
        asked = json.dumps([str(versions(["gliner"])), *bodies]).encode()
        file = self.models / f"{model.name}-{hashlib.sha256(asked).hexdigest()[:12]}.json"
        if not file.exists():
            told = job.run("gliner_own", model=str(model.resolve()), bodies=list(bodies), batch_sizes=[1], seconds=0.0)
            file.write_text(json.dumps(told["answers"]), encoding="utf-8")
        return [found(answer) for answer in json.loads(file.read_text("utf-8"))]

    def expected_with_adapters(self, model: Path, bodies: Sequence[workload.Body]) -> list[Found]:
        """The same for bodies that may name adapters, each merged into the weights; bodies of one stand together."""
        folder = self.adapters(model).root
        asked = json.dumps([str(versions(["gliner", "peft"])), *bodies]).encode()
        file = folder.parent / f"expected-{hashlib.sha256(asked).hexdigest()[:12]}.json"
        if not file.exists():
            tell(f"  asking gliner for {len(bodies)} answers with adapters merged")
            size = -(-len(bodies) // min(4, usable_cores()))
            parts = [bodies[at : at + size] for at in range(0, len(bodies), size)]

            def answers(part: Sequence[workload.Body]) -> list[Any]:
                asked: dict[str, Any] = {"model": str(model.resolve()), "folder": str(folder), "bodies": list(part)}
                return list(job.run("adapters", what="merged", **asked)["answers"])

            with ThreadPoolExecutor(len(parts)) as pool:
                told = list(itertools.chain(*pool.map(answers, parts)))
            file.write_text(json.dumps(told), encoding="utf-8")
        return [found(answer) for answer in json.loads(file.read_text("utf-8"))]

    def ours_in_process(self, model: Path, settings: Mapping[str, Any] | None = None, **arguments: Any) -> Any:
        """The result of jobs/ours.py with these settings."""
        return job.run("ours", environment({"model": str(model.resolve()), **(settings or {})}), **arguments)

    # Servers, never two at once

    @contextlib.contextmanager
    def ours(self, model: Path, **settings: Any) -> Iterator[Server]:
        """Our server with these settings."""
        command = [sys.executable, "-m", "gliner_bento.cli", "serve", "--port", "{port}"]
        with self._server("ours", command, environment({"model": str(model.resolve()), **settings})) as server:
            yield server

    @contextlib.contextmanager
    def gliner_serve(self, model: Path, dtype: str) -> Iterator[Server]:
        """gliner.serve on Ray, on the CPU, with its own defaults but one: `tokenizer_threads` is what it computes with,
        by default 4, and where that is more than the cores, they wait for each other for minutes."""
        self._need("ray")
        command = [sys.executable, "-m", "gliner.serve", "--model", str(model.resolve()), "--device", "cpu"]
        command += ["--dtype", dtype, "--no-compile", "--num-gpus-per-replica", "0", "--num-cpus-per-replica", "1"]
        command += ["--tokenizer-threads", str(usable_cores())]
        with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as temporary:
            quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": temporary}
            with self._server("gliner.serve", [*command, "--port", "{port}"], quiet, "running at") as server:
                yield server

    @contextlib.contextmanager
    def naive(self, model: Path, dtype: str) -> Iterator[Server]:
        """BentoML's `batchable=True` around gliner."""
        command = [sys.executable, "-m", "bentoml", "serve", "gliner_bento.benchmark.jobs.naive_service:NaiveService"]
        command += ["--working-dir", str(PROJECT_ROOT), "--host", "127.0.0.1", "--port", "{port}"]
        env = {"BENCH_MODEL": str(model.resolve()), "BENCH_DTYPE": dtype, **_bentoml()}
        with self._server("naive", command, env) as server:
            yield server

    @contextlib.contextmanager
    def _server(
        self, name: str, command: Sequence[str], env: Mapping[str, str], ready: str = "/readyz"
    ) -> Iterator[Server]:
        tell(f"  starting {name} {' '.join(f'{k}={v}' for k, v in env.items() if k.startswith('GLINER_'))}")
        log = self.folder / f"{name}.log"
        try:
            with started(command, cwd=PROJECT_ROOT, log=log, env=env, ready=ready) as server:
                yield server
        except RuntimeError as error:
            raise NotMeasured(f"{name} did not start, see {log.name}: {str(error).splitlines()[-1]}") from error

    def _need(self, package: str) -> None:
        if versions([package])[package] is None:
            raise NotMeasured(f"{package} is not installed")

    # Measurements

    def point(
        self,
        server: str,
        url: str,
        bodies: Sequence[Any],
        *,
        concurrency: int = 0,
        rate: float = 0.0,
        seconds: float | None = None,
        most: int | None = None,
        expected: Sequence[Found] | None = None,
        others: Sequence[Sequence[Found]] | None = None,
        **about: Any,
    ) -> dict[str, Any]:
        """Measure one load on a warm server, and keep the result: a closed loop of `concurrency`, or an open one.

        most: requests of a closed loop, in place of seconds. others: see `own_share`.
        """
        asked, seconds = workload.encoded(bodies), seconds or self.plan.seconds
        run: Run
        if rate:
            run = open_loop(url, asked, rate=rate, seconds=seconds)
        else:
            run = closed_loop(url, asked, concurrency=concurrency, seconds=FOREVER_S if most else seconds, most=most)
        agreement = judged(run.replies, expected)
        told = agreement.summary() if agreement else None
        if told and expected and others:
            told["own"] = own_share(run.replies, expected, others)
        return self.kept(server, run, told, concurrency=concurrency, rate=rate, **about)

    def kept(
        self,
        server: str,
        run: Run,
        agreement: dict[str, Any] | None = None,
        *,
        concurrency: int = 0,
        rate: float = 0.0,
        **about: Any,
    ) -> dict[str, Any]:
        """The point of a load that was measured, kept. Raises NotMeasured where nothing was answered."""
        point = {"server": server, "concurrency": concurrency, "rate": rate, **about, **run.summary()}
        point["agreement"] = agreement
        self.points.append(point)
        tell(f"  {server} {about} at {concurrency or f'{rate:.1f}/s'}: {point['requests_per_s']:.1f} requests/s")
        if not point["requests_per_s"]:
            raise NotMeasured(f"{server} answered {point['statuses']}")
        return point

    def speed(self, server: str, dtype: str, concurrency: int) -> float | None:
        """Requests/s that the section bf16 or fp32 has measured in this run; None if it did not run."""
        for point in self.points:
            same = (point["server"], point.get("dtype"), point["concurrency"]) == (server, dtype, concurrency)
            if point.get("section") in {"bf16", "fp32"} and same:
                return float(point["requests_per_s"])
        return None

    def warm(self, url: str, bodies: Sequence[Any], concurrency: int | None = None) -> None:
        """Let a server meet all shapes before it is measured."""
        number = concurrency or max(self.plan.concurrencies)
        closed_loop(url, workload.encoded(bodies), concurrency=number, seconds=self.plan.warm_up_s)


def _made(folder: Path, maker: str, **arguments: Any) -> Path:
    """A folder that a job has made, now or earlier; one that is half made is made anew."""
    stamp = folder / _STAMP
    if not stamp.exists():
        tell(f"  making {folder}")
        shutil.rmtree(folder, ignore_errors=True)
        told = job.run(maker, folder=str(folder.resolve()), **arguments)
        stamp.write_text(json.dumps(told), encoding="utf-8")
    return folder


def environment(settings: Mapping[str, Any]) -> dict[str, str]:
    """Environment names for our server or engine. Raises NotMeasured for a setting that there is not."""
    unknown = settings.keys() - Settings.model_fields.keys()
    if unknown:
        raise NotMeasured(f"no setting {', '.join(sorted(unknown))}")
    return {env_name(name): str(value) for name, value in settings.items()} | _bentoml()


def tell(line: str) -> None:
    """Progress, for the person who waits."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")


def _bentoml() -> dict[str, str]:
    home = Path(os.environ.get("BENTOML_HOME", BUILD / "bentoml"))
    home.mkdir(parents=True, exist_ok=True)
    return {"BENTOML_DO_NOT_TRACK": "True", "BENTOML_HOME": str(home.resolve())}
