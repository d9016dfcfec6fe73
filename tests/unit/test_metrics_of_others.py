"""/metrics where other processes are on other machines: all in one exposition, those of replicas with a label."""

from __future__ import annotations

import os
import subprocess
import sys

from prometheus_client.parser import text_string_to_metric_families

from gliner_bento.telemetry import metrics

OTHER = b"""\
# HELP gliner_tokens_total Tokens.
# TYPE gliner_tokens_total counter
gliner_tokens_total 77.0
# HELP gliner_items_total Items.
# TYPE gliner_items_total counter
gliner_items_total{outcome="completed"} 5.0
# HELP theirs Only there.
# TYPE theirs gauge
theirs 1.0
"""


def test_families_are_merged_and_samples_of_others_have_a_label():
    metrics.process_metrics().of_model("demo")
    state = metrics.ReplicaState(None, None, None)
    text = metrics.exposition([state], {"one": OTHER, "two": OTHER.replace(b"77", b"78")}).decode()
    assert text.count("# TYPE gliner_tokens_total ") == 1
    families = {family.name: family for family in text_string_to_metric_families(text)}
    tokens = {sample.labels.get("replica"): sample.value for sample in families["gliner_tokens"].samples}
    assert (tokens["one"], tokens["two"]) == (77, 78)
    assert None in tokens, "this process's own"
    assert {"outcome": "completed", "replica": "one"} in [sample.labels for sample in families["gliner_items"].samples]
    assert [sample.labels for sample in families["theirs"].samples] == [{"replica": "one"}, {"replica": "two"}]
    assert families["gliner_ready"].samples[0].value == 0


def test_what_a_process_exposes_is_merged_elsewhere():
    metrics.process_metrics().of_model("demo").on_split(2)
    text = metrics.exposition([], {"one": metrics.own_exposition()}).decode()
    assert 'gliner_batch_splits_total{model="demo",replica="one"}' in text


def test_importing_the_module_makes_no_metrics_and_the_folder_may_be_set_later(tmp_path):
    code = (
        "import os, sys; from gliner_bento.telemetry import metrics; assert not os.listdir(sys.argv[1]);"
        "os.environ['PROMETHEUS_MULTIPROC_DIR'] = sys.argv[1]; metrics.process_metrics().of_model('demo').on_split(2);"
        "print(metrics.exposition([]).decode())"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PROMETHEUS_MULTIPROC_DIR"}
    ended = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], env=environment, capture_output=True, text=True, check=True
    )
    assert 'gliner_batch_splits_total{model="demo"} 1.0' in ended.stdout
    assert [file.name.rpartition("_")[0] for file in tmp_path.glob("counter*")] == ["counter"]
