"""`gliner-bento doctor` with the bundled model in this process."""

from __future__ import annotations

import json

from gliner_bento import cli


def test_the_machine_the_settings_and_the_model_are_reported(capsys):
    assert cli.main(["doctor", "--json", "--inference-lanes", "1", "--torch-threads", "1", "--device", "cpu"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["machine"]["usable_cores"] >= 1
    assert report["settings"] == {"inference_lanes": 1, "torch_threads": 1, "max_batch_tokens": 1024}
    assert report["model"]["self_test"] == "passed"
    assert "Microsoft [organization]" in report["model"]["entities_found"]
    assert report["packages"]["torch"]
