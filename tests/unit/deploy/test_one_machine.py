"""The files for one machine: what they mount and set exists, and Docker Compose, Prometheus and systemd accept them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gliner_bento.cli.flags import parse
from gliner_bento.settings import Settings
from gliner_bento.settings.configuration import PROJECT_ROOT

DEPLOY = PROJECT_ROOT / "deploy"
COMPOSE = DEPLOY / "compose" / "docker-compose.yml"
SERVICES = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]
UNIT = (DEPLOY / "systemd" / "gliner-bento.service").read_text(encoding="utf-8")
NGINX = (DEPLOY / "nginx" / "gliner-bento.conf").read_text(encoding="utf-8")
DEFAULTS = Settings.model_construct()


def accepted(*command: str, cwd: Path = DEPLOY) -> str:
    ended = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def test_mounted_files_exist_and_ports_are_those_of_loopback():
    for service in SERVICES.values():
        for mount in service["volumes"]:
            source = mount.partition(":")[0]
            assert not source.startswith(".") or (COMPOSE.parent / source).is_file(), source
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def test_the_server_has_settings_that_exist_and_time_to_end():
    names = {f"GLINER_{name.upper()}" for name in Settings.model_fields}
    assert set(SERVICES["server"]["environment"]) <= names
    assert float(SERVICES["server"]["stop_grace_period"].removesuffix("s")) > DEFAULTS.shutdown_timeout_s
    assert float(re.search(r"TimeoutStopSec=(\d+)", UNIT)[1]) > DEFAULTS.shutdown_timeout_s


def test_prometheus_scrapes_the_server_and_grafana_has_the_dashboard_with_its_data():
    prometheus, grafana, provider = (
        yaml.safe_load((COMPOSE.parent / name).read_text(encoding="utf-8"))
        for name in ("prometheus.yml", "grafana.yml", "grafana-dashboards.yml")
    )
    [job] = prometheus["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["server:3000"]}]
    mounted = dict(mount.split(":")[:2] for mount in SERVICES["prometheus"]["volumes"] + SERVICES["grafana"]["volumes"])
    assert f"/etc/prometheus/{prometheus['rule_files'][0]}" in mounted.values()
    [source] = grafana["datasources"]
    assert (source["url"], source["isDefault"]) == ("http://prometheus:9090", True)
    folder = provider["providers"][0]["options"]["path"]
    assert mounted["../grafana/dashboard.json"] == f"{folder}/dashboard.json"
    variables = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text(encoding="utf-8"))["templating"]["list"]
    assert {"name": "datasource", "query": source["type"]}.items() <= variables[0].items()


def test_a_proxy_has_the_servers_limits():
    assert f"client_max_body_size {DEFAULTS.max_body_bytes >> 20}m; # max_body_bytes" in NGINX
    assert f"client_max_body_size {DEFAULTS.max_adapter_bytes >> 20}m; # max_adapter_bytes" in NGINX
    assert f"proxy_read_timeout {DEFAULTS.request_timeout_s + 15:.0f}s; # request_timeout_s" in NGINX


def test_the_unit_starts_a_command_that_exists():
    command = re.search(r"ExecStart=\S+/gliner-bento (.*)", UNIT)
    assert parse(command[1].split())[0] == "serve"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path):
    program = tmp_path / ".venv" / "bin" / "gliner-bento"
    program.parent.mkdir(parents=True)
    program.symlink_to(sys.executable)
    (tmp_path / "gliner-bento.service").write_text(UNIT.replace("/opt/gliner-bento", str(tmp_path)))
    said = accepted("systemd-analyze", "verify", str(tmp_path / "gliner-bento.service"))
    assert "gliner-bento.service" not in said


@pytest.mark.skipif(not shutil.which("docker-compose"), reason="needs docker-compose")
def test_docker_compose_accepts_its_file():
    accepted("docker-compose", "--file", str(COMPOSE), "config", "--quiet")


@pytest.mark.skipif(not shutil.which("promtool"), reason="needs promtool, which is in Debian's package prometheus")
def test_prometheus_accepts_its_configuration(tmp_path):
    shutil.copy(COMPOSE.parent / "prometheus.yml", tmp_path)
    shutil.copy(DEPLOY / "prometheus" / "alerts.yaml", tmp_path)
    assert "SUCCESS" in accepted("promtool", "check", "config", "prometheus.yml", cwd=tmp_path)
