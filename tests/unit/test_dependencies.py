"""The bill of materials and the page of licences."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from license_expression import get_spdx_licensing

from gliner_bento.settings import PROJECT_ROOT
from tools import dependencies


def test_the_page_of_licences_is_fresh():
    command = [sys.executable, "tools/dependencies.py", "licenses", "--check"]
    ended = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(("before", "after"), [(" click,", ""), ("| MIT |", "| ISC |")])
def test_a_page_without_a_package_or_with_another_licence_is_stale(before: str, after: str, tmp_path, monkeypatch):
    page = dependencies.licenses_page(dependencies.pins())
    assert before in page
    (tmp_path / "licenses.md").write_text(page.replace(before, after))
    monkeypatch.setattr(dependencies, "PAGE", tmp_path / "licenses.md")
    stale = set(dependencies._stale(page, dependencies.pins()))
    assert stale == {"click"} if before == " click," else "tomli-w" in stale


def test_every_pin_has_a_licence_whatever_its_marker_and_it_is_an_spdx_expression():
    spdx, licences = get_spdx_licensing(), dependencies.written()
    assert set(licences) == {pin.name for pin in dependencies.pins()}
    assert {name for name, licence in licences.items() if spdx.validate(licence).errors} == set()


def test_the_bill_of_materials_needs_no_installed_package(tmp_path):
    """Which packages are installed depends on the system, the version of Python and the tools of developers."""
    bill = tmp_path / "bill.json"
    without_packages = [sys.executable, "-I", "-S", "tools/dependencies.py", "sbom", str(bill)]
    ended = subprocess.run(without_packages, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert json.loads(bill.read_text()) == dependencies.bill_of_materials(dependencies.pins())


def test_a_package_that_is_not_installed_keeps_its_line_and_a_new_one_is_asked_for(monkeypatch, capsys, tmp_path):
    pins = [*dependencies.pins(), dependencies.Pin("only-elsewhere", "1.0", "sys_platform == 'win32'")]
    monkeypatch.setattr(dependencies, "pins", lambda: pins)
    for arguments in (["licenses", "--check"], ["sbom", str(tmp_path / "bill.json")]):
        assert dependencies.main(arguments) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert "only-elsewhere" in line
        assert "docs/licenses.md" in line
    row = f"{dependencies.PAGE.read_text(encoding='utf-8')}| MIT-0 | only-elsewhere |\n"
    monkeypatch.setattr(dependencies, "written", lambda: dependencies.licences(row))
    assert dependencies.licences(dependencies.licenses_page(pins)) == dependencies.licences(row)


def test_the_bill_of_materials_is_valid_and_lists_all_that_a_server_is_made_of():
    listed = dependencies.pins()
    bill = dependencies.bill_of_materials(listed)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill)) is None
    components = {component["bom-ref"] for component in bill["components"]}
    assert components == {pin.purl for pin in listed} | {"models/demo", "pkg:npm/cytoscape@3.34.4"}
    assert bill == dependencies.bill_of_materials(listed)


def test_the_bill_of_an_image_also_lists_its_debian_packages(tmp_path, capsys):
    packages, bill = tmp_path / "packages.tsv", tmp_path / "bill.json"
    packages.write_text("libc6\t2.36-9+deb12u13\tamd64\ntzdata\t1:2025b\tall\n")
    assert dependencies.main(["sbom", str(bill), str(packages)]) == 0
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill.read_text()) is None
    purls = [component["purl"] for component in json.loads(bill.read_text())["components"][-2:]]
    assert purls == ["pkg:deb/debian/libc6@2.36-9%2Bdeb12u13?arch=amd64", "pkg:deb/debian/tzdata@1%3A2025b?arch=all"]
    packages.write_text("libc6 2.36\n")
    assert dependencies.main(["sbom", str(bill), str(packages)]) == 1
    assert (
        capsys.readouterr().err
        == "make: 'libc6 2.36' is no line of name, version and architecture with tabs between them\n"
    )
