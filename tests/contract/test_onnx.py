"""ONNX checkpoints: results are gliner's and independent of batching; unsupported ones are refused."""

from __future__ import annotations

import logging
import shutil
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from checkpoints import checkpoint_in, load_engine
from comparison import assert_same, extract_batch, extract_one, gliner_extraction, random_item
from gliner import GLiNER
from hub import cached_folder
from onnx.external_data_helper import set_external_data

from gliner_bento.engine.checkpoint.device import DType
from gliner_bento.engine.checkpoint.find import ModelError, stays_inside
from gliner_bento.engine.checkpoint.onnx_session import OnnxSession, inspect_onnx, load_onnx
from gliner_bento.engine.engine import GLiNEREngine
from gliner_bento.engine.families import Family, family_of
from gliner_bento.engine.onnx_forward import OnnxForward

CPU = torch.device("cpu")
FAMILIES = ["span", "token", "bi-span", "bi-token"]
QUANTIZED = "model_quantized.onnx"
PLAIN: Any = (CPU, "auto", 1)
ITEMS = [random_item(seed, relations=False) for seed in range(10)]


@pytest.fixture(scope="module")
def exported(checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A folder with gliner's ONNX export and no torch weights: `exported(family, **options)`."""

    @cache
    def made(family: str, **options: Any) -> Path:
        of, folder = checkpoint(family, **options), tmp_path_factory.mktemp("graph")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter's
            logging.disable(logging.WARNING)
            GLiNER.from_pretrained(str(of)).export_to_onnx(folder, quantize=True)
            logging.disable(logging.NOTSET)
        if (of / "labels_tokenizer").is_dir():
            shutil.copytree(of / "labels_tokenizer", folder / "labels_tokenizer")
        return folder

    return made


@pytest.fixture(scope="module")
def served(exported: Callable[..., Path]) -> Callable[..., GLiNEREngine]:
    """An engine over that export: `served(family, onnx_model_file, **options)`."""

    @cache
    def loaded(family: str, file: str = "model.onnx", **options: Any) -> GLiNEREngine:
        return load(exported(family, **options), file)

    return loaded


def load(folder: Path, file: str = "model.onnx", dtype: DType = "auto") -> GLiNEREngine:
    return load_engine(folder, dtype=dtype, runtime="onnxruntime", onnx_model_file=file)


def gliners_graph(folder: Path, file: str = "model.onnx") -> Any:
    """gliner's own model over the ONNX file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return GLiNER.from_pretrained(str(folder), load_onnx_model=True, onnx_model_file=file)


@pytest.mark.parametrize("backbone", ["bert", "deberta"])
@pytest.mark.parametrize("family", FAMILIES)
def test_results_are_gliners_with_torch_and_onnx(
    family: str, backbone: str, served: Any, exported: Any, reference: Any
) -> None:
    options = {"backbone": backbone, "seed": 1 if backbone == "bert" else 2}
    engine, torchs = served(family, **options), reference(family, **options)
    graphs, found = gliners_graph(exported(family, **options)), 0
    for item in ITEMS:
        answer = extract_one(engine, item)
        assert_same(answer, gliner_extraction(torchs, item))
        assert_same(answer, gliner_extraction(graphs, item))
        found += len(answer.entities)
    assert found > 12


@pytest.mark.parametrize("file", ["model.onnx", QUANTIZED])
@pytest.mark.parametrize("family", FAMILIES)
def test_results_do_not_depend_on_batching(family: str, file: str, served: Any) -> None:
    engine = served(family, file, seed=1)
    for item, answer in zip(ITEMS, extract_batch(engine, ITEMS), strict=True):
        assert_same(answer, extract_one(engine, item))


@pytest.mark.parametrize("option", [{"span_mode": "markerV1"}, {"span_mode": "markerV2"}, {"fuse_layers": True}])
def test_padding_changes_no_result(option: Any, served: Any, reference: Any) -> None:
    engine, gliner = served("span", seed=1, **option), reference("span", seed=1, **option)
    for item, answer in zip(ITEMS, extract_batch(engine, ITEMS), strict=True):
        assert_same(answer, gliner_extraction(gliner, item))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_quantized_file_gives_gliners_results(family: str, served: Any, exported: Any) -> None:
    engine, graphs = served(family, QUANTIZED, seed=1), gliners_graph(exported(family, seed=1), QUANTIZED)
    for item in ITEMS:
        assert_same(extract_one(engine, item), gliner_extraction(graphs, item))


@pytest.mark.parametrize("file", ["model.onnx", QUANTIZED])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_self_test_compares_with_gliners_session(
    family: str, file: str, exported: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"runtime": "onnxruntime", "onnx_model_file": file, "self_test": True}
    assert load_engine(exported(family, seed=1), "auto", **options).info.self_test == "passed"
    logits = OnnxSession.logits
    monkeypatch.setattr(OnnxSession, "logits", lambda self, inputs: logits(self, inputs) + 0.01)
    with pytest.raises(ModelError, match="cannot be reproduced"):
        load_engine(exported(family, seed=1), "auto", **options)


def forward_of(model: Any) -> OnnxForward:
    family = family_of(model, "exported")
    assert isinstance(family, Family)
    return OnnxForward(model, family.collator(model), family.decode)


def test_a_quantized_file_depends_on_the_batch(served: Any, exported: Any) -> None:
    """Why its texts run one by one: gliner's scores depend on the other texts of a batch."""
    engine, exact = (
        served("span", QUANTIZED, seed=1),
        forward_of(load_onnx(checkpoint_in(exported("span", seed=1), "model.onnx"), *PLAIN)),
    )
    graph = load_onnx(checkpoint_in(exported("span", seed=1), QUANTIZED), *PLAIN).model
    rows = [engine.prepare(item) for item in ITEMS[:5]]
    one, many = (torch.sigmoid(graph.logits(exact.collate(some).inputs[0])) for some in (rows[:1], rows))
    assert (many[:1, : one.shape[1], :, : one.shape[3]] - one).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("family", "file", "dtype", "forward"),
    [
        ("span", "model.onnx", "float32", "onnxruntime"),
        ("token", QUANTIZED, "int8", "onnxruntime, text by text"),
        ("bi-span", "model.onnx", "float32", "onnxruntime, text by text"),
    ],
)
def test_reports_the_model(family: str, file: str, dtype: str, forward: str, served: Any, engine: Any) -> None:
    info = served(family, file, seed=1).info
    torchs = engine(family, seed=1).info
    assert (info.dtype, info.forward, info.device, info.fingerprint) == (dtype, forward, "cpu", None)
    assert served(family, file, seed=1).packs == ("text by text" in forward)
    assert (info.family, info.max_words, info.max_span_width) == (
        torchs.family,
        torchs.max_words,
        torchs.max_span_width,
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_the_limits_are_those_of_torch(family: str, served: Any, engine: Any) -> None:
    """The token limit is the encoder's, which is not part of the folder."""
    words = " ".join(["incomprehensibilities"] * 30)
    item = random_item(0, relations=False)
    item = type(item)(words, item.labels, long_text="truncate")
    ours, torchs = (one.prepare(item) for one in (served(family, seed=1), engine(family, seed=1)))
    assert ours.truncated_at
    assert (ours.tokens, ours.words, ours.truncated_at) == (torchs.tokens, torchs.words, torchs.truncated_at)


def test_a_session_has_the_given_threads(exported: Any) -> None:
    for threads in (1, 3):
        session = load_onnx(checkpoint_in(exported("span", seed=1), "model.onnx"), CPU, "auto", threads).model.session
        assert session.get_session_options().intra_op_num_threads == threads


@pytest.mark.parametrize("family", ["token-spans", "relex-span", "relex-token"])
def test_refuses_families_with_incomplete_exports(family: str, exported: Any) -> None:
    with pytest.raises(ModelError, match="is incomplete"):
        load(exported(family, seed=1))


@pytest.mark.parametrize("file", ["model.onnx", "onnx/model.onnx"])
def test_serves_a_download_without_torch_weights(file: str, exported: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(exported("bi-span", seed=1), cached_folder(tmp_path / "hub", "one/name"))
    (folder / file).parent.mkdir(exist_ok=True)
    shutil.move(folder / "model.onnx", folder / file)
    options = {"runtime": "onnxruntime", "onnx_model_file": file, "cache_dir": tmp_path / "hub"}
    engine = load_engine("one/name", dtype="auto", **options)
    assert engine.info.model == "one/name"
    assert extract_one(engine, ITEMS[0]).entities


def test_refuses_a_checkpoint_without_an_onnx_file(checkpoint: Any) -> None:
    with pytest.raises(ModelError, match=r"has no model\.onnx"):
        load(checkpoint("span", seed=1))


@pytest.mark.parametrize("file", ["../model.onnx", "/etc/model.onnx", "a/../../model.onnx", "C:\\model.onnx", ""])
def test_refuses_files_outside_the_folder(file: str, exported: Any) -> None:
    assert not stays_inside(file)
    with pytest.raises(ModelError, match="inside"):
        load(exported("span", seed=1), file)


def test_refuses_a_file_that_is_not_onnx(exported: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(exported("span", seed=1), tmp_path / "spoilt")
    (folder / "model.onnx").write_bytes(b"MZ\x90\x00 this is no graph")
    with pytest.raises(ModelError, match="not an ONNX file"):
        load(folder)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_refuses_a_dtype_that_the_file_does_not_have(dtype: Any, exported: Any) -> None:
    with pytest.raises(ModelError, match=f"{dtype}.*not available"):
        load(exported("span", seed=1), dtype=dtype)


def test_refuses_a_gpu_without_its_runtime(exported: Any) -> None:
    with pytest.raises(ModelError, match="onnxruntime-gpu"):
        load_onnx(checkpoint_in(exported("span", seed=1), "model.onnx"), torch.device("cuda:0"), "auto", threads=1)


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_reports_a_missing_package(package: str, exported: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "gliner_bento.engine.checkpoint.onnx_session.find_spec", lambda name: None if name == package else object()
    )
    with pytest.raises(ModelError, match=r"install the extra onnx: "):
        load(exported("span", seed=1))


def test_refuses_a_configuration_that_names_code(exported: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(exported("span", seed=1), tmp_path / "spoilt")
    path = folder / "gliner_config.json"
    path.write_text(path.read_text().replace("{", '{"auto_map": {"AutoModel": "evil.Evil"},', 1))
    with pytest.raises(ModelError, match="auto_map"):
        load(folder)


@pytest.fixture
def elsewhere(exported: Any, tmp_path: Path) -> Callable[[str], Path]:
    """A checkpoint whose ONNX file keeps its one large tensor in the file `location`."""

    def made(location: str) -> Path:
        folder = shutil.copytree(exported("span", seed=1), tmp_path / "checkpoint" / "folder")
        graph = onnx.load(folder / "model.onnx")
        tensor = max(graph.graph.initializer, key=lambda tensor: len(tensor.raw_data))
        (folder / "data").mkdir()
        (folder / "data" / "weights.bin").write_bytes(tensor.raw_data)
        (folder.parent / "weights.bin").write_bytes(tensor.raw_data)
        set_external_data(tensor, location=location)
        tensor.ClearField("raw_data")
        (folder / "model.onnx").write_bytes(graph.SerializeToString())
        return folder

    return made


def test_reads_tensors_from_files_in_its_folder(elsewhere: Any, served: Any) -> None:
    engine = load(elsewhere("data/weights.bin"))
    assert_same(extract_one(engine, ITEMS[0]), extract_one(served("span", seed=1), ITEMS[0]))


@pytest.mark.parametrize("location", ["../weights.bin", "data/../../weights.bin", "/etc/passwd", "C:weights.bin"])
def test_refuses_tensors_from_files_elsewhere(location: str, elsewhere: Any) -> None:
    with pytest.raises(ModelError, match="not in its folder"):
        load(elsewhere(location))


def test_finds_tensors_at_any_depth(tmp_path: Path) -> None:
    tensor = onnx.helper.make_tensor("deep", onnx.TensorProto.FLOAT, [1], bytes(4), raw=True)
    constant = onnx.helper.make_node("Constant", [], ["out"], value=tensor)
    branch = onnx.helper.make_graph([constant], "branch", [], [])
    choice = onnx.helper.make_node("If", ["which"], ["out"], then_branch=branch, else_branch=branch)
    hidden = choice.attribute[0].g.node[0].attribute[0].t
    set_external_data(hidden, location="../secret")
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx.helper.make_model(onnx.helper.make_graph([choice], "main", [], [])).SerializeToString())
    with pytest.raises(ModelError, match="not in its folder"):
        inspect_onnx(path)
