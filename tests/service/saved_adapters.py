"""Adapters of the bundled model as PEFT saves them, archives of them, and requests about them."""

from __future__ import annotations

import copy
import io
import tarfile
import warnings
import zipfile
from pathlib import Path

import httpx
import torch

from gliner_bento.settings import PROJECT_ROOT

TEXT = "Bill Gates founded Microsoft in 1975. The company is headquartered in Redmond."
LABELS = ["person", "organization", "date", "location"]
BODY = {"text": TEXT, "labels": LABELS, "threshold": 0.1}
FILES = ("adapter_config.json", "adapter_model.safetensors")

MAX_ADAPTER_BYTES = 4 * 2**20
MAX_DISK_ADAPTERS = 5
"""Of the server `own_server`."""


def save_adapters(root: Path) -> dict[str, Path]:
    """Folders that PEFT has saved: adapters whose weights are drawn, so strong that answers change."""
    from gliner import GLiNER
    from peft import LoraConfig, get_peft_model

    gliner = GLiNER.from_pretrained(str(PROJECT_ROOT / "models" / "demo"), map_location="cpu")
    kinds = {
        "one": {"r": 4, "target_modules": ["query", "value"]},
        "two": {"r": 8, "target_modules": ["key", "intermediate.dense"], "lora_alpha": 32},
        "high": {"r": 32, "target_modules": ["query"]},
    }
    for seed, (name, options) in enumerate(kinds.items()):
        with warnings.catch_warnings(), torch.random.fork_rng(), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.manual_seed(seed)
            adapted = get_peft_model(copy.deepcopy(gliner.model), LoraConfig(**{"lora_alpha": 16} | options))
            for parameter_name, parameter in adapted.named_parameters():
                if "lora_B" in parameter_name:
                    parameter.normal_(0.0, 0.3)
            adapted.save_pretrained(root / name)
    return {name: root / name for name in kinds}


def zipped(folder: Path, prefix: str = "", **others: bytes) -> bytes:
    """The adapter of a folder, and other files by their names."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in FILES:
            archive.write(folder / name, prefix + name)
        for name, content in others.items():
            archive.writestr(name, content)
    return file.getvalue()


def tarred(folder: Path) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        archive.add(folder, arcname="adapter")
    return file.getvalue()


def archive_of(**files: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return file.getvalue()


def put(http: httpx.Client, adapter_id: str, content: bytes, **query: object) -> httpx.Response:
    return http.put(f"/v1/adapters/{adapter_id}", content=content, params=query)


def scores(http: httpx.Client, adapter_id: str | None = None) -> dict[tuple[str, str], float]:
    answer = http.post("/v1/extract", json=BODY | {"adapter_id": adapter_id})
    assert answer.status_code == 200, answer.text
    return {(entity["text"], entity["label"]): entity["score"] for entity in answer.json()["entities"]}


def error_of(response: httpx.Response) -> tuple[int, str, str | None]:
    error = response.json()["error"]
    assert error["message"]
    assert error["request_id"] == response.headers["x-request-id"]
    return response.status_code, error["code"], error["param"]


def ids(http: httpx.Client) -> set[str]:
    return {card["id"] for card in http.get("/v1/adapters").json()["adapters"]}
