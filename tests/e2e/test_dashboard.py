"""Every panel of the dashboard has data in a real Prometheus that scrapes a served instance under a little load.

Needs the program `prometheus` (a package of Debian), and runs only with DASHBOARD_DATA=file, where it writes the data
of each panel.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from gliner import GLiNER
from peft import LoraConfig, get_peft_model

from benchmark.server import free_port, started
from gliner_bento.client import Client
from gliner_bento.settings import PROJECT_ROOT

DATA = os.environ.get("DASHBOARD_DATA")
LOAD_S = 40.0
PATIENCE_S = 240.0
BODY = {"text": "Bill Gates founded Microsoft in 1975. It is in Redmond.", "labels": ["person", "organization"]}
PROMETHEUS = """
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [RULES]
scrape_configs:
  - job_name: gliner-bento
    static_configs: [{targets: ["TARGET"]}]
"""

pytestmark = pytest.mark.skipif(
    not (DATA and shutil.which("prometheus")), reason="needs DASHBOARD_DATA=file and the program prometheus"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("server")
    command = [sys.executable, "-m", "gliner_bento.cli", "serve", "--port", "{port}", "--enable-lora"]
    command += ["--disk-cache-dir", str(folder / "adapters"), "--max-cpu-adapters", "1", "--queue-capacity", "64"]
    with started(command, cwd=PROJECT_ROOT, log=folder / "log") as server, Client(server.url) as client:
        for name in save_adapters(folder):
            client.put_adapter(name, folder / name)
        yield server.url


def save_adapters(folder: Path) -> Iterator[str]:
    """Two adapters of the bundled model, one more than the server keeps in memory."""
    base = GLiNER.from_pretrained(str(PROJECT_ROOT / "models" / "demo"), map_location="cpu").model
    for name in ("one", "two"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            get_peft_model(copy.deepcopy(base), LoraConfig(r=4, target_modules=["query"])).save_pretrained(
                folder / name
            )
        yield name


@pytest.fixture(scope="module")
def prometheus(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder, port = tmp_path_factory.mktemp("prometheus"), free_port()
    rules = PROJECT_ROOT / "deploy" / "prometheus" / "alerts.yaml"
    configuration = PROMETHEUS.replace("TARGET", server.removeprefix("http://")).replace("RULES", str(rules))
    (folder / "prometheus.yml").write_text(configuration)
    command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
        try:
            wait_until(lambda: httpx.get(f"http://127.0.0.1:{port}/-/ready").status_code == 200)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def wait_until(condition: Any) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up:
        with contextlib.suppress(httpx.TransportError):
            if condition():
                return
        time.sleep(0.5)
    pytest.fail("the condition never held")


def load(url: str) -> None:
    """Short and long texts, some with errors, for a while."""
    long = BODY | {"text": BODY["text"] * 100}
    kinds = [BODY] * 20 + [long, BODY | {"timeout_ms": 0.001}, BODY | {"threshold": 7}]
    kinds += [BODY | {"adapter_id": name} for name in ("one", "two", "nobody")]
    crowd = {"texts": [BODY["text"]] * 60, "labels": ["person"]}
    ends_s = time.monotonic() + LOAD_S
    with httpx.Client(base_url=url, timeout=60) as client, ThreadPoolExecutor(16) as pool:
        while time.monotonic() < ends_s:
            list(pool.map(lambda body: client.post("/v1/extract", json=body), kinds * 2))
            list(pool.map(lambda body: client.post("/v1/extract/batch", json=body), [crowd] * 4))


def series_of(prometheus: str, expression: str, started_s: float) -> list[dict[str, Any]]:
    asked = expression.replace("$__rate_interval", "10s").replace("$instance", ".*").replace("$model", ".*")
    arguments = {"query": asked, "start": started_s, "end": time.time(), "step": 1}
    answer = httpx.get(f"{prometheus}/api/v1/query_range", params=arguments, timeout=30).json()
    assert answer["status"] == "success", answer
    series: list[dict[str, Any]] = answer["data"]["result"]
    return series


def test_every_panel_has_data(server: str, prometheus: str) -> None:
    started_s = time.time()
    load(server)
    time.sleep(3)
    dashboard = json.loads((PROJECT_ROOT / "deploy" / "grafana" / "dashboard.json").read_text(encoding="utf-8"))
    data = {
        (panel["title"], target["legendFormat"]): series_of(prometheus, target["expr"], started_s)
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
    }
    assert DATA
    Path(DATA).write_text(json.dumps([[*name, series] for name, series in data.items()]))
    numbers = {name: [float(value) for one in series for _, value in one["values"]] for name, series in data.items()}
    empty = {name for name, values in numbers.items() if not [value for value in values if not math.isnan(value)]}
    assert empty == set()
    rules = httpx.get(f"{prometheus}/api/v1/rules").json()["data"]["groups"][0]["rules"]
    assert {rule["health"] for rule in rules} == {"ok"}
