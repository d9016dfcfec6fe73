"""What every test needs: nothing is sent anywhere, nothing outside a private folder is touched."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")  # a busy machine fails no property

_PRIVATE = Path(tempfile.mkdtemp(prefix="gliner-bento-tests-"))

os.environ["BENTOML_DO_NOT_TRACK"] = "True"
os.environ["BENTOML_HOME"] = str(_PRIVATE / "bentoml")
os.environ["HF_HUB_CACHE"] = str(_PRIVATE / "hub")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_WAIT_POLICY"] = "passive"  # threads that wait leave the cores to other workers and servers
os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(_PRIVATE / "metrics")
for folder in ("BENTOML_HOME", "PROMETHEUS_MULTIPROC_DIR"):
    Path(os.environ[folder]).mkdir(parents=True, exist_ok=True)
