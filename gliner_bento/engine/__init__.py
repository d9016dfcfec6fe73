"""The model: loads checkpoints, and turns items into results."""

import os

# gliner imports onnxruntime, which otherwise reports its use to Microsoft and keeps an id of the machine in ~/.cache.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
