"""The model that gliner-bento serves by default, as data: the folder `demo` beside this file."""

from pathlib import Path

__version__ = "1.0.0"

FOLDER = Path(__file__).with_name("demo")
