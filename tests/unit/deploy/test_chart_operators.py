"""The manifests of KEDA's and Prometheus' operators, checked by the TypeScript compiler against the types that
kubernetes-models generates from the operators' Go code. Needs node and npm."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess

import pytest
from manifests import of_kind, tools

PACKAGES = ["@kubernetes-models/keda@2.0.0", "@kubernetes-models/prometheus-operator@6.0.0", "typescript@5.9.3"]
TYPES = {
    "ScaledObject": "@kubernetes-models/keda/keda.sh/v1alpha1/ScaledObject",
    "ServiceMonitor": "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/ServiceMonitor",
    "PrometheusRule": "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PrometheusRule",
}
OPTIONS = {"module": "nodenext", "moduleResolution": "nodenext", "strict": True, "noEmit": True, "skipLibCheck": True}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (shutil.which("node") and shutil.which("npm")), reason="needs node and npm"),
]


@pytest.fixture(scope="module")
def compiler():
    folder = tools() / "npm"
    folder.mkdir(exist_ok=True)
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", *PACKAGES], cwd=folder, check=True)
    (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": OPTIONS, "files": ["manifests.ts"]}))

    def check(*documents):
        lines = [f'import type {{ I{kind} }} from "{module}";' for kind, module in TYPES.items()]
        for number, document in enumerate(documents):
            lines.append(f"export const d{number}: I{document['kind']} = {json.dumps(document)};")
        (folder / "manifests.ts").write_text("\n".join(lines))
        command = ["node", "node_modules/typescript/bin/tsc", "--project", "."]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout

    return check


def test_the_operators_types_take_the_manifests(compiler):
    documents = [of_kind("keda", kind) for kind in TYPES] + [of_kind("hpa", "ServiceMonitor")]
    assert compiler(*documents) == ""


def test_the_operators_types_refuse_misspelt_fields_and_values(compiler):
    scaled, monitor = (copy.deepcopy(of_kind("keda", kind)) for kind in ("ScaledObject", "ServiceMonitor"))
    scaled["spec"]["fallback"]["behaviour"] = "static"
    monitor["spec"]["endpoints"][0]["interval"] = 15
    errors = compiler(scaled, monitor).splitlines()
    assert len(errors) == 2
    assert "'\"behaviour\"' does not exist" in errors[0]
    assert "'number' is not assignable to type 'string'" in errors[1]
