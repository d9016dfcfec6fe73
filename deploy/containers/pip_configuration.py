"""pip's configuration on this machine (indexes, certificates, folders of wheels), for a container or a clean root."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path


def write(folder: Path, **more: str) -> tuple[Path, list[str]]:
    """Write the file pip.conf in the folder. Returns its path, and the files and folders of this machine that it names.

    more: values that are added to those of a list, such as `extra_index_url`.
    """
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    settings: dict[str, str] = {}
    for line in sorted(listed.splitlines(), key=lambda line: line.startswith(":env:")):  # the environment wins
        name, _, value = line.partition("=")
        settings[name.rpartition(".")[2]] = ast.literal_eval(value)
    settings.pop("config-file", None)
    for option, value in more.items():
        name = option.replace("_", "-")
        settings[name] = f"{settings.get(name, '')} {value}".strip()
    file = folder / "pip.conf"
    file.write_text("\n".join(["[global]", *(f"{name} = {value}" for name, value in settings.items())]) + "\n")
    named = {word for value in settings.values() for word in value.split() if Path(word).is_absolute()}
    return file, sorted(word for word in named if Path(word).exists())
