"""The faults of `make chaos`: what is done to a server, and which answers are allowed while it lasts.

A fault is a function that does it, waits as long as it lasts, and undoes what does not end by itself. Processes are
signalled by their ids.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import resource
import shutil
import signal
import socket
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import psutil
from safetensors.numpy import save

from benchmark.server import Server
from gliner_bento.client import Client
from gliner_bento.errors import DeadlineExceeded, DoesNotFit, GLiNERBentoError
from reliability.commands import kill_bulk, lie_to_redact
from reliability.guarded import guard_during, guard_with_redis
from reliability.served import processes

MB = 2**20
_LAYER = "token_rep_layer.bert_layer.model.encoder.layer.0.attention.self.query"
_HIDDEN = 384
_OVERLOAD = ("queue_full", "deadline_exceeded", "not_ready", "429", "503", "504")
_CALLS_S = 1.0  # long enough for calls of the guardrail


@dataclass(frozen=True, slots=True)
class Target:
    """The server, and folders: of orders for what is injected into its processes, of its adapters, and `model_root`."""

    server: Server
    orders: Path
    adapters: Path
    models: Path
    lasts_s: float

    def process(self, name: str) -> psutil.Process:
        """The process of the gateway or the runner; waits until there is one."""
        give_up_s = time.monotonic() + 120
        while (found := processes(self.server).get(name)) is None:
            if time.monotonic() > give_up_s:
                raise RuntimeError(f"there is no {name}")
            time.sleep(0.2)
        return found

    @property
    def address(self) -> tuple[str, int]:
        """Where the gateway listens."""
        host, _, port = self.server.url.removeprefix("http://").partition(":")
        return host, int(port)


@dataclass(frozen=True, slots=True)
class Fault:
    """inject: does it; returns facts for the report. refused: codes of errors that are allowed, besides those of
    overload; statuses are for formats whose errors have no code. drops: whether connections may be closed without an
    answer. ends: the server ends with it. own_server: it starts another server, so this one gets no load meanwhile."""

    description: str
    inject: Callable[[Target], str]
    refused: tuple[str, ...] = ()
    drops: bool = False
    ends: bool = False
    own_server: bool = False

    def allows(self, outcome: str) -> bool:
        """Whether requests may end like this while the fault lasts: `refused (code)`, `dropped (error)`."""
        kind, _, code = outcome.partition(" ")
        return kind == "right" or (kind == "dropped" and self.drops) or code.strip("()") in (*_OVERLOAD, *self.refused)


def _kill(name: str) -> Callable[[Target], str]:
    def inject(target: Target) -> str:
        target.process(name).kill()
        return ""

    return inject


def _stop(name: str) -> Callable[[Target], str]:
    """Stopped for a while, and continued."""

    def inject(target: Target) -> str:
        process = target.process(name)
        process.suspend()
        time.sleep(target.lasts_s)
        process.resume()
        return f"stopped for {target.lasts_s:g} s"

    return inject


def _stop_for_good(name: str) -> Callable[[Target], str]:
    """Stopped until the supervisor kills it."""

    def inject(target: Target) -> str:
        process = target.process(name)
        process.suspend()
        began_s = time.monotonic()
        with contextlib.suppress(psutil.Error):
            process.wait(120)
        return f"killed by the supervisor after {time.monotonic() - began_s:.0f} s"

    return inject


def _hang(target: Target) -> str:
    """A batch never ends."""
    runner = target.process("runner")
    (target.orders / "hang").touch()
    began_s = time.monotonic()
    with contextlib.suppress(psutil.Error):
        runner.wait(120)
    return f"the process ended after {time.monotonic() - began_s:.0f} s"


def _out_of_memory(target: Target) -> str:
    order = target.orders / "out_of_memory"
    order.touch()
    time.sleep(target.lasts_s)
    order.unlink()
    return ""


def _full_disk(target: Target) -> str:
    """No file of the runner may become larger than 1 MB: the same error path as a full disk, without being root."""
    runner = target.process("runner")
    before = resource.prlimit(runner.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(runner.pid, resource.RLIMIT_FSIZE, (MB, before[1]))
    try:
        body = random.Random(0).randbytes(4 * MB)
        codes = []
        for number in range(5):
            answer = httpx.put(f"{target.server.url}/v1/adapters/large-{number}", content=body, timeout=60)
            codes.append(answer.json()["error"]["code"])
    finally:
        resource.prlimit(runner.pid, resource.RLIMIT_FSIZE, before)
    if set(codes) != {"storage_full"}:
        raise AssertionError(f"uploads to a full disk got {codes}")
    return f"{len(codes)} uploads got 507 storage_full"


def _no_file_descriptors(target: Target) -> str:
    """The gateway can open no more files or connections for a while, and more clients come."""
    gateway = target.process("gateway")
    before = resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, (gateway.num_fds(), before[1]))
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(20):
                with contextlib.suppress(OSError):
                    stack.enter_context(socket.create_connection(target.address, timeout=5))
            time.sleep(target.lasts_s)
    finally:
        resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, before)
    return f"for {target.lasts_s:g} s, with 20 more clients"


def _not_finite(target: Target) -> str:
    """Requests with an adapter whose updates are too large for float32, in batches with those of others."""
    _put(target, "huge", 1e30)
    codes = {_code_with(target, "huge") for _ in _ticks(target.lasts_s, 0.2)}
    _delete(target, "huge")
    return _expected(codes, "scores_not_finite")


def _damaged_adapter(target: Target) -> str:
    """Adapters whose file was damaged on disk before they are loaded."""
    codes = set()
    for number in range(5):
        name = f"damaged-{number}"
        _put(target, name, 0.01)
        (weights,) = target.adapters.rglob(f"{name}/*.safetensors")
        content = bytearray(weights.read_bytes())
        content[-1000] ^= 0xFF
        weights.write_bytes(content)
        codes.add(_code_with(target, name))
        _delete(target, name)
    return _expected(codes, "adapter_invalid")


def _clock_jumps(target: Target) -> str:
    """The wall clock of the server's processes jumps a day ahead, and back."""
    order = target.orders / "clock"
    order.touch()
    time.sleep(target.lasts_s)
    order.unlink()
    return ""


def _put(target: Target, name: str, value: float) -> None:
    """Put an adapter of rank 1 for the bundled model, all of whose weights are `value`. It is not loaded yet."""
    layer = f"base_model.model.{_LAYER}"
    tensors = {
        f"{layer}.lora_A.weight": np.full((1, _HIDDEN), value, np.float32),
        f"{layer}.lora_B.weight": np.full((_HIDDEN, 1), value, np.float32),
    }
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        config = {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": [_LAYER]}
        archive.writestr("adapter_config.json", json.dumps(config))
        archive.writestr("adapter_model.safetensors", save(tensors))
    url = f"{target.server.url}/v1/adapters/{name}"
    httpx.put(url, content=content.getvalue(), params={"preload": "false"}, timeout=60).raise_for_status()


def _code_with(target: Target, adapter: str) -> str:
    body = {"text": "Ada Lovelace lived in London.", "labels": ["person", "city"], "adapter_id": adapter}
    answer = httpx.post(f"{target.server.url}/v1/extract", json=body, timeout=60).json()
    return str(answer["error"]["code"] if "error" in answer else "an answer")


def _delete(target: Target, adapter: str) -> None:
    httpx.delete(f"{target.server.url}/v1/adapters/{adapter}", timeout=60).raise_for_status()


def _expected(codes: set[str], code: str) -> str:
    if not codes <= {code, *_OVERLOAD}:
        raise AssertionError(f"requests got {sorted(codes)} in place of {code}")
    return f"their requests got {code}"


def _bad_clients(target: Target) -> str:
    """Clients that send half of a request and wait, that send slowly, and that leave before the answer."""
    body = b'{"text": "' + b"Ada Lovelace lived in London. " * 200 + b'", "labels": ["person"]}'
    head = (
        f"POST /v1/extract HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    message = head.encode() + body
    left = 0
    with contextlib.ExitStack() as stack:
        slow = []
        for _ in range(40):
            slow.append(stack.enter_context(socket.create_connection(target.address, timeout=10)))
            slow[-1].sendall(message[: len(message) // 2])
        for at_s in _ticks(target.lasts_s, 0.1):
            with socket.create_connection(target.address, timeout=10) as client:
                client.sendall(message)
            left += 1
            for number, client in enumerate(slow[:20]):
                with contextlib.suppress(OSError):  # the server closes connections that are too slow
                    client.sendall(message[len(message) // 2 + int(at_s * 10) + number :][:1])
    return f"40 slow clients, {left} that left"


def _models_change(target: Target) -> str:
    """A second model is added, unloaded and loaded under requests of its own, and deleted: each of them is answered, or
    refused because the model is not loaded."""
    name, outcomes = "chaos-second", Counter[str]()
    with Client(target.server.url, timeout_s=300) as client:
        with contextlib.suppress(DeadlineExceeded):  # loading continues
            client.add_model(name, "demo")
        while next(one.state for one in client.models() if one.id == name) == "loading":
            time.sleep(0.5)
        for number, _ in enumerate(_ticks(target.lasts_s, 0.1)):
            if number % 20 == 10:
                client.change_model(name, "unload")
            elif number % 20 == 15:
                with contextlib.suppress(DeadlineExceeded):
                    client.change_model(name, "load")
            try:
                found = client.extract("Ada Lovelace lived in London.", ["person"], model=name).entities
                outcomes["right" if [one.text for one in found] == ["Ada Lovelace"] else "wrong"] += 1
            except GLiNERBentoError as error:
                outcomes[error.code] += 1
        client.delete_model(name)
    if outcomes.keys() - {"right", "not_ready", "model_not_loaded", *_OVERLOAD}:
        raise AssertionError(f"requests to the model that changed: {dict(outcomes)}")
    return f"requests to it: {dict(outcomes)}"


def _large_model(target: Target) -> str:
    """A model whose weights do not fit into the memory is added: refused, before it is loaded."""
    shutil.copytree(target.models / "demo", target.models / "large", dirs_exist_ok=True)
    with (target.models / "large" / "model.safetensors").open("r+b") as weights:
        weights.truncate(2**42)  # no blocks are allocated
    with Client(target.server.url, timeout_s=300) as client:
        for _ in _ticks(target.lasts_s, 1.0):
            try:
                client.add_model("chaos-large", "large")
            except DoesNotFit:
                continue
            raise AssertionError("a model of 4 TB was added")
    return "refused each time"


def _one_name_twice(target: Target) -> str:
    """Two clients add a model of the same name concurrently: one wins."""

    def add(_: int) -> str:
        with Client(target.server.url, timeout_s=300) as client:
            try:
                client.add_model("chaos-twice", "demo")
            except GLiNERBentoError as error:
                return error.code
        return "added"

    with ThreadPoolExecutor(2) as pool:
        outcomes = sorted(pool.map(add, range(2)))
    with Client(target.server.url, timeout_s=300) as client:
        client.delete_model("chaos-twice")
    if outcomes != ["added", "conflict"]:
        raise AssertionError(f"two additions of one name: {outcomes}")
    return f"the two got: {', '.join(outcomes)}"


def _load_killed(target: Target) -> str:
    """The model's process gets SIGKILL while it loads a further model, which the next process does not know."""
    with Client(target.server.url, timeout_s=300) as client, ThreadPoolExecutor(1) as pool:
        adding = pool.submit(client.add_model, "chaos-killed", "demo")
        while not any(one.id == "chaos-killed" for one in client.models()):
            if adding.done():
                raise AssertionError("the model was loaded before the process was killed")
            time.sleep(0.01)
        target.process("runner").kill()
        error = adding.exception()
        _until_ready(target)
        if error is None or any(one.id == "chaos-killed" for one in client.models()):
            raise AssertionError(f"an addition was killed: {error!r}; {client.models()}")
        client.add_model("chaos-killed", "demo")
        client.delete_model("chaos-killed")
    return f"the addition got {getattr(error, 'code', error)}; the next one worked"


def _guard_killed(target: Target) -> str:
    def kill() -> None:
        time.sleep(_CALLS_S)
        killed = target.process("runner")
        killed.kill()
        killed.wait(60)
        _until_ready(target)
        time.sleep(_CALLS_S)

    return guard_during(target.server.url, kill, redacts=True)


def _until_ready(target: Target) -> None:
    """Return when there is a model's process, and it serves."""
    target.process("runner")
    while not httpx.get(f"{target.server.url}/readyz", timeout=60).is_success:
        time.sleep(0.2)


def _guard_slow(target: Target) -> str:
    return guard_during(target.server.url, lambda: _stop("runner")(target), timeout_s=1.0)


def _ticks(seconds: float, every_s: float) -> Iterator[float]:
    for number in range(int(seconds / every_s)):
        yield number * every_s
        time.sleep(every_s)


def _terminate(target: Target) -> str:
    os.kill(target.server.pid, signal.SIGTERM)
    began_s = time.monotonic()
    process = psutil.Process(target.server.pid)
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.05)
    return f"ended after {time.monotonic() - began_s:.1f} s"


FAULTS = {
    "runner-killed": Fault("the model's process gets SIGKILL", _kill("runner")),
    "gateway-killed": Fault("the gateway gets SIGKILL", _kill("gateway"), drops=True),
    "runner-stopped": Fault("the model's process is stopped (SIGSTOP) and continued", _stop("runner")),
    "gateway-stopped": Fault("the gateway is stopped and continued", _stop("gateway")),
    "runner-hangs": Fault("the model's process is stopped for good", _stop_for_good("runner")),
    "gateway-hangs": Fault("the gateway is stopped for good", _stop_for_good("gateway"), drops=True),
    "forward-hangs": Fault("a batch never ends", _hang, refused=("internal", "500")),
    "out-of-memory": Fault("batches of several items find no memory", _out_of_memory),
    "full-disk": Fault("uploads of adapters find no room", _full_disk),
    "not-finite": Fault("scores of an adapter's items are not numbers", _not_finite),
    "damaged-adapter": Fault("adapters are damaged on disk", _damaged_adapter),
    "clock-jumps": Fault("the clock jumps a day ahead, and back", _clock_jumps),
    "no-file-descriptors": Fault("the gateway can open no connection", _no_file_descriptors, drops=True),
    "bad-clients": Fault("clients that are slow, and that leave", _bad_clients),
    "models-change": Fault("a second model is added, unloaded, loaded and deleted", _models_change),
    "model-too-large": Fault("a model that does not fit into the memory is added", _large_model),
    "model-twice": Fault("a model is added twice concurrently", _one_name_twice),
    "model-load-killed": Fault("the model's process gets SIGKILL while it loads another model", _load_killed),
    "bulk-killed": Fault("bulk gets SIGKILL twice, and continues", lambda target: kill_bulk(target.server.url)),
    "false-answers": Fault("redact gets false answers", lambda target: lie_to_redact(target.server.url)),
    "guard-killed": Fault(
        "the model's process gets SIGKILL during calls of LiteLLM's guardrail",
        _guard_killed,
    ),
    "guard-slow": Fault("the model is slower than LiteLLM's guardrail waits", _guard_slow),
    "guard-redis": Fault("the guardrail's Redis is stopped, lost, full", lambda _: guard_with_redis(), own_server=True),
    "sigterm": Fault("SIGTERM under load", _terminate, drops=True, ends=True),
}
