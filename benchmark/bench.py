"""One run of the benchmark: its plan, its folder, its results so far, and the measurements that sections share.

sections.py decides what is measured in which order, report.py how it is presented.
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

from benchmark import generated, job
from benchmark.answers import Predictions, agreement_of_replies, own_adapter_share, predictions_of
from benchmark.job import NotMeasured
from benchmark.rows import Row
from benchmark.server import Server, started
from gliner_bento.loadtest import workload
from gliner_bento.loadtest.load import Run, closed_loop, open_loop
from gliner_bento.loadtest.machine import versions
from gliner_bento.loadtest.measure import BUILD
from gliner_bento.settings import PROJECT_ROOT, Settings
from gliner_bento.settings.cores import usable_cores
from gliner_bento.settings.names import env_name

DEMO = PROJECT_ROOT / "models" / "demo"
MODELS = (BUILD / "models").absolute()
UNLIMITED_S = 1e9
_STAMP = "made.json"


@dataclass(frozen=True)
class Plan:
    """How much is measured. The names of the fields are those of results.json.

    adapters: few, many, all. adapter_texts: number of different texts sent with adapters. document_words: of the long
    document for the large model. paragraphs: of the one for the bundled model. bundled: use the bundled model in place
    of the large ones with random weights.
    """

    seconds: float = 15.0
    warm_up_s: float = 5.0
    concurrencies: tuple[int, ...] = (1, 8, 32)
    texts: int = 256
    in_process_s: float = 10.0
    in_process_texts: int = 96
    settings_s: float = 8.0
    adapters: tuple[int, int, int] = (8, 64, 256)
    adapter_texts: int = 64
    adapter_requests: int = 2000
    cold_adapters: int = 20
    document_words: int = 50_000
    paragraphs: int = 50
    bundled: bool = False

    @classmethod
    def of(cls, seconds: float) -> Plan:
        """A plan with loads of `seconds` each, and the other durations in proportion."""
        return cls(seconds, seconds / 3, in_process_s=seconds * 2 / 3, settings_s=seconds / 2)


QUICK = Plan(1.0, 0.5, (1, 4), 12, 0.5, 6, 0.5, (4, 4, 24), 6, 40, 4, 3000, 6, bundled=True)


@dataclass(slots=True)
class Bench:
    """A run of the benchmark into `folder`. models: the cache of checkpoints, adapters and expected predictions."""

    plan: Plan
    folder: Path
    models: Path
    points: list[dict[str, Any]] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)

    # Models, workloads and expected predictions

    def checkpoint(self, family: str) -> Path:
        """The folder of a checkpoint (ner, relex, bi); built unless one by the same code is cached.

        relex is the bundled model: gliner scores every pair of proposed spans, and fails on the number of them that
        random weights propose.
        """
        if self.plan.bundled or family == "relex":
            if family == "bi":
                raise NotMeasured("the bundled model is not a bi-encoder")
            return DEMO
        version = hashlib.sha256((job.JOBS / "checkpoints.py").read_bytes()).hexdigest()[:12]
        bodies = self.bodies(family, 24, seed=1)
        folder = self.models / f"{family}-{version}"
        return _cached_folder(folder, "checkpoints", what="build", family=family, tokenizer=DEMO, bodies=bodies)

    def gliner2_checkpoint(self) -> Path:
        """The folder of a GLiNER2 checkpoint; built unless one by the same code is cached."""
        return self._by_own_job("gliner2", bodies=workload.mixed(24, 1))

    def gliclass_checkpoint(self) -> Path:
        """The folder of a GLiClass checkpoint; built unless one by the same code is cached."""
        return self._by_own_job("gliclass")

    def _by_own_job(self, package: str, **arguments: Any) -> Path:
        version = hashlib.sha256((job.JOBS / f"{package}_own.py").read_bytes()).hexdigest()[:12]
        folder = self.models / f"{package}-{version}"
        return _cached_folder(folder, f"{package}_own", what="build", tokenizer=DEMO, **arguments)

    def exported(self) -> Path:
        """The folder with the ONNX export of the entity model."""
        model = self.checkpoint("ner")
        folder = self.models / f"{model.name}-onnx"
        return _cached_folder(folder, "checkpoints", what="export", model=model)

    def exported_int8(self) -> Path:
        """The same with weights in 8 bits, and activations quantized as they come."""
        exported = self.exported()
        folder = self.models / f"{exported.name}-int8"
        return _cached_folder(folder, "checkpoints", what="quantize", exported=exported)

    def adapters(self, model: Path) -> Path:
        """The folder with LoRA adapters of a model, one folder each, cached: the plan's full number for queries and
        values, a few for values only, and a few for all linear layers of the encoder."""
        few, _, every = self.plan.adapters
        counts = {"attention": every, "values": few, "linear": few}
        code = (job.JOBS / "adapters.py").read_bytes() + json.dumps(counts).encode()
        folder = self.models / f"{model.name}-adapters-{hashlib.sha256(code).hexdigest()[:12]}"
        _cached_folder(folder, "adapters", what="make", model=model, counts=counts)
        return folder / "root"

    def bodies(self, family: str, count: int, seed: int = 0) -> list[workload.Body]:
        """Bodies of the mixed workload for a model."""
        bodies = workload.mixed(count, seed)
        return generated.with_relations(bodies) if self.plan.bundled or family == "relex" else bodies

    def expected(self, model: Path, bodies: Sequence[workload.Body]) -> list[Predictions]:
        """The predictions of gliner's own forward on torch in float32, one text per batch; cached."""
        key = json.dumps([str(versions(["gliner"])), *bodies]).encode()
        file = self.models / f"{model.name}-{hashlib.sha256(key).hexdigest()[:12]}.json"
        if not file.exists():
            requests: dict[str, Any] = {"bodies": list(bodies), "batch_sizes": [1], "seconds": 0.0}
            result = job.run("gliner_own", model=model, **requests)
            file.write_text(json.dumps(result["answers"]), encoding="utf-8")
        return [predictions_of(answer) for answer in json.loads(file.read_text("utf-8"))]

    def expected_with_adapters(self, model: Path, bodies: Sequence[workload.Body]) -> list[Predictions]:
        """The same for bodies with adapters, which are merged into the weights. Bodies must be sorted by adapter."""
        folder = self.adapters(model)
        key = json.dumps([str(versions(["gliner", "peft"])), *bodies]).encode()
        file = folder.parent / f"expected-{hashlib.sha256(key).hexdigest()[:12]}.json"
        if not file.exists():
            log_progress(f"  computing {len(bodies)} expected predictions, adapters merged")
            size = -(-len(bodies) // min(4, usable_cores()))
            parts = [bodies[at : at + size] for at in range(0, len(bodies), size)]

            def answers(part: Sequence[workload.Body]) -> list[Any]:
                inputs: dict[str, Any] = {"model": model, "folder": folder, "bodies": list(part)}
                return list(job.run("adapters", what="merged", **inputs)["answers"])

            with ThreadPoolExecutor(len(parts)) as pool:
                joined = list(itertools.chain(*pool.map(answers, parts)))
            file.write_text(json.dumps(joined), encoding="utf-8")
        return [predictions_of(answer) for answer in json.loads(file.read_text("utf-8"))]

    def ours_in_process(self, model: Path, settings: Mapping[str, Any] | None = None, **arguments: Any) -> Any:
        """The result of jobs/ours.py with these settings."""
        return job.run("ours", environment({"model": model, **(settings or {})}), **arguments)

    # Servers, one at a time

    @contextlib.contextmanager
    def ours(self, model: Path | Mapping[str, Path], *, gateways: int = 1, **settings: Any) -> Iterator[Server]:
        """gliner-bento with these settings. model: several by their names. gateways: processes of the gateway."""
        if gateways > 1:
            config = self.folder / f"{gateways}-gateways.yaml"
            config.write_text(f"services:\n  GLiNERService:\n    workers: {gateways}\n", encoding="utf-8")
            settings["config"] = config.resolve()
        command = [sys.executable, "-m", "gliner_bento.cli", "serve", "--port", "{port}"]
        if isinstance(model, Mapping):
            settings["models"] = ",".join(f"{name}={folder.resolve()}" for name, folder in model.items())
        else:
            settings["model"] = str(model.resolve())
        with self.started("ours", command, environment(settings)) as server:
            yield server

    @contextlib.contextmanager
    def gliner_serve(self, model: Path, dtype: str, device: str = "cpu") -> Iterator[Server]:
        """gliner.serve on Ray, with its defaults except `tokenizer_threads`.

        That is the number of threads it computes with, 4 by default; with fewer cores than that it stalls for minutes.
        """
        self.need("ray")
        command = [sys.executable, "-m", "gliner.serve", "--model", str(model), "--device", device]
        gpus = "1" if device == "cuda" else "0"
        command += ["--dtype", dtype, "--no-compile", "--num-gpus-per-replica", gpus, "--num-cpus-per-replica", "1"]
        command += ["--tokenizer-threads", str(usable_cores())]
        with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as temporary:
            env = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": temporary}
            with self.started("gliner.serve", [*command, "--port", "{port}"], env, "running at") as server:
                yield server

    @contextlib.contextmanager
    def naive(self, model: Path, dtype: str) -> Iterator[Server]:
        """gliner behind BentoML's `batchable=True`."""
        command = [sys.executable, "-m", "bentoml", "serve", "benchmark.jobs.naive_service:NaiveService"]
        command += ["--working-dir", str(PROJECT_ROOT), "--host", "127.0.0.1", "--port", "{port}"]
        env = {"BENCH_MODEL": str(model), "BENCH_DTYPE": dtype, **_bentoml()}
        with self.started("naive", command, env) as server:
            yield server

    @contextlib.contextmanager
    def started(
        self, name: str, command: Sequence[str], env: Mapping[str, str], ready: str = "/readyz"
    ) -> Iterator[Server]:
        log_progress(f"  starting {name} {' '.join(f'{k}={v}' for k, v in env.items() if k.startswith('GLINER_'))}")
        log = self.folder / f"{name}.log"
        try:
            with started(command, cwd=PROJECT_ROOT, log=log, env=env, ready=ready) as server:
                yield server
        except RuntimeError as error:
            raise NotMeasured(f"{name} did not start, see {log.name}: {str(error).splitlines()[-1]}") from error

    def need(self, package: str) -> None:
        """Raise NotMeasured if a package is not installed."""
        if versions([package])[package] is None:
            raise NotMeasured(f"{package} is not installed")

    # Measurements

    def measure_load(
        self,
        server: str,
        url: str,
        bodies: Sequence[Any],
        *,
        concurrency: int = 0,
        rate: float = 0.0,
        seconds: float | None = None,
        max_requests: int | None = None,
        expected: Sequence[Predictions] | None = None,
        other_adapters: Sequence[Sequence[Predictions]] | None = None,
        **about: Any,
    ) -> dict[str, Any]:
        """Measure one load on a warm server and keep the point: a closed loop of `concurrency`, or an open one.

        max_requests: ends a closed loop, in place of seconds. other_adapters: see `own_adapter_share`.
        """
        payloads, seconds = workload.encoded(bodies), seconds or self.plan.seconds
        run: Run
        if rate:
            run = open_loop(url, payloads, rate=rate, seconds=seconds)
        else:
            until = UNLIMITED_S if max_requests else seconds
            run = closed_loop(url, payloads, concurrency=concurrency, seconds=until, max_requests=max_requests)
        agreement = agreement_of_replies(run.replies, expected).summary() if expected is not None else None
        if agreement and expected and other_adapters:
            agreement["own"] = own_adapter_share(run.replies, expected, other_adapters)
        return self.keep_point(server, run, agreement, concurrency=concurrency, rate=rate, **about)

    def keep_point(
        self,
        server: str,
        run: Run,
        agreement: dict[str, Any] | None = None,
        *,
        concurrency: int = 0,
        rate: float = 0.0,
        **about: Any,
    ) -> dict[str, Any]:
        """Keep the point of a measured load. Raises NotMeasured if no request succeeded."""
        point = {"server": server, "concurrency": concurrency, "rate": rate, **about, **run.summary()}
        point["agreement"] = agreement
        self.points.append(point)
        load = f"concurrency {concurrency}" if concurrency else f"{rate:.1f} requests/s"
        log_progress(f"  {server} {about} at {load}: {point['requests_per_s']:.1f} requests/s")
        if not point["requests_per_s"]:
            raise NotMeasured(f"{server} answered {point['statuses']}")
        return point

    def speed(self, server: str, dtype: str, concurrency: int) -> float | None:
        """Requests/s that the section bf16 or fp32 measured in this run; None if it did not run."""
        for point in self.points:
            same = (point["server"], point.get("dtype"), point["concurrency"]) == (server, dtype, concurrency)
            if point.get("section") in {"bf16", "fp32"} and same:
                return float(point["requests_per_s"])
        return None

    def warm_up(
        self, url: str, bodies: Sequence[Any], concurrency: int | None = None, seconds: float | None = None
    ) -> None:
        """Send a load that is not measured, so that the server has met all shapes."""
        number = concurrency or max(self.plan.concurrencies)
        closed_loop(url, workload.encoded(bodies), concurrency=number, seconds=seconds or self.plan.warm_up_s)


def _cached_folder(folder: Path, maker: str, **arguments: Any) -> Path:
    """A folder made by a job, now or in an earlier run; an incomplete one is made again."""
    stamp = folder / _STAMP
    if not stamp.exists():
        log_progress(f"  making {folder}")
        shutil.rmtree(folder, ignore_errors=True)
        result = job.run(maker, folder=folder, **arguments)
        stamp.write_text(json.dumps(result), encoding="utf-8")
    return folder


def environment(settings: Mapping[str, Any]) -> dict[str, str]:
    """Environment names for our server or engine. Raises NotMeasured for an unknown setting."""
    unknown = settings.keys() - Settings.model_fields.keys()
    if unknown:
        raise NotMeasured(f"no setting {', '.join(sorted(unknown))}")
    return {env_name(name): str(value) for name, value in settings.items()} | _bentoml()


def log_progress(line: str) -> None:
    """Write a line with the time to stderr."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")


def _bentoml() -> dict[str, str]:
    home = Path(os.environ.get("BENTOML_HOME", BUILD / "bentoml"))
    home.mkdir(parents=True, exist_ok=True)
    return {"BENTOML_DO_NOT_TRACK": "True", "BENTOML_HOME": str(home.absolute())}
