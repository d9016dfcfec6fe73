"""Weights in every format: gliner's answers, converted once, and one line for files that cannot be loaded."""

from __future__ import annotations

import json
import logging
import os
import resource
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from checkpoints import LABELS, TEXTS, checkpoint_in, load_engine, named
from comparison import assert_same, extract_one, gliner_extraction
from gliner import GLiNER
from safetensors.torch import load_file, save_file

from gliner_bento.engine.checkpoint.find import ModelError
from gliner_bento.engine.checkpoint.load import load
from gliner_bento.settings import Settings, SettingsError
from gliner_bento.settings.configuration import PROJECT_ROOT
from gliner_bento.tasks.extraction import ExtractionItem as Item

CPU = torch.device("cpu")
ITEM = Item(TEXTS[1], named(LABELS), threshold=0.3)
Tensors = dict[str, torch.Tensor]


def pickled(folder: Path, tensors: Tensors) -> None:
    torch.save(tensors, folder / "pytorch_model.bin")


def pickled_long_ago(folder: Path, tensors: Tensors) -> None:
    torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)


def pickled_on_a_gpu(folder: Path, tensors: Tensors) -> None:
    """As cuDNN lays out the weights of an LSTM: parts of one block of memory; and with a tensor under two names,
    and as a vector."""
    names = [name for name in tensors if name.startswith("rnn.")]
    block = torch.cat([tensors[name].flatten() for name in names])
    ends = torch.tensor([tensors[name].numel() for name in names]).cumsum(0).tolist()
    parts = {
        name: block[end - tensors[name].numel() : end].view_as(tensors[name])
        for name, end in zip(names, ends, strict=True)
    }
    assert len(parts) > 4
    weight = tensors["prompt_rep_layer.0.weight"]
    pickled(folder, tensors | parts | {"also": weight, "flat": weight.flatten()})


def pickled_in_shards(folder: Path, tensors: Tensors) -> None:
    index = shards(tensors, "pytorch_model-{}-of-2.bin")
    for file in set(index.values()):
        torch.save({name: tensors[name] for name in tensors if index[name] == file}, folder / file)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))


def safetensors_in_shards(folder: Path, tensors: Tensors) -> None:
    index = shards(tensors, "model-{}-of-2.safetensors")
    for file in set(index.values()):
        save_file({name: tensors[name] for name in tensors if index[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))


def shards(tensors: Tensors, pattern: str) -> dict[str, str]:
    return {name: pattern.format(1 + number % 2) for number, name in enumerate(tensors)}


FORMATS = [pickled, pickled_long_ago, pickled_on_a_gpu, pickled_in_shards, safetensors_in_shards]


@pytest.fixture
def original(checkpoint: Callable[..., Path]) -> Path:
    return checkpoint("span", seed=1)


@pytest.fixture
def tensors(original: Path) -> Tensors:
    return load_file(original / "model.safetensors")


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """The checkpoint without weights."""
    return shutil.copytree(original, tmp_path / "checkpoint", ignore=shutil.ignore_patterns("*.safetensors"))


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "conversions"


def state(folder: Path, cache: Path, **options: Any) -> Tensors:
    """The weights of the model that is served."""
    checkpoint = checkpoint_in(folder, conversion_cache_dir=cache, **options)
    return dict(load(checkpoint, CPU, torch.float32).model.state_dict())


def assert_equal(weights: Tensors, expected: Tensors) -> None:
    for name, tensor in expected.items():
        assert torch.equal(weights[name], tensor), name


@pytest.mark.parametrize("save", FORMATS)
def test_every_format_gives_the_same_weights_at_the_first_start_and_later(
    save: Callable[[Path, Tensors], None], folder: Path, tensors: Tensors, cache: Path
) -> None:
    save(folder, tensors)
    for _ in range(2):
        assert_equal(state(folder, cache), tensors)
    converted = sorted(path.suffix for path in cache.iterdir()) if cache.exists() else []
    assert converted == ([] if save is safetensors_in_shards else ["", ".safetensors"])
    assert_equal(state(folder, cache, convert=False), tensors)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_pickled_weights_give_gliners_answers(
    dtype: torch.dtype, folder: Path, tensors: Tensors, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pickled(folder, {name: tensor.to(dtype) for name, tensor in tensors.items()})
    caplog.set_level(logging.INFO)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reference = GLiNER.from_pretrained(str(folder))
    ours = extract_one(load_engine(folder, conversion_cache_dir=cache), ITEM)
    assert ours.entities
    assert_same(ours, gliner_extraction(reference, ITEM))
    assert (f"pytorch_model.bin has weights in {dtype}; the model runs in torch.float32" in caplog.text) is (
        dtype != torch.float32
    )


def test_a_later_start_does_not_read_the_pickled_file(folder: Path, tensors: Tensors, cache: Path) -> None:
    pickled(folder, tensors)
    state(folder, cache)
    flip(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"damaged or incomplete \(wrong checksum of pytorch_model/"):
        state(folder, cache, convert=False)
    assert_equal(state(folder, cache), tensors)


def test_other_weights_in_the_same_file_are_converted(folder: Path, tensors: Tensors, cache: Path) -> None:
    pickled(folder, tensors)
    state(folder, cache)
    times = os.stat(folder / "pytorch_model.bin")
    other = {name: tensor + 1 if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    pickled(folder, other)
    os.utime(folder / "pytorch_model.bin", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert os.stat(folder / "pytorch_model.bin").st_size == times.st_size
    assert_equal(state(folder, cache), other)


def test_a_damaged_conversion_is_replaced(
    folder: Path, tensors: Tensors, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pickled(folder, tensors)
    state(folder, cache)
    [converted] = cache.glob("*.safetensors")
    content = converted.read_bytes()
    flip(converted)
    (cache / ".converting-killed").write_bytes(b"half")
    (cache / ".mine.tmp").touch()
    assert_equal(state(folder, cache), tensors)
    assert f"{converted} is damaged" in caplog.text
    assert converted.read_bytes() == content
    assert sorted(path.name for path in cache.iterdir()) == [".mine.tmp", converted.name, "lock"]


@contextmanager
def full_disk(cache: Path) -> Iterator[None]:
    """No file may become larger than 50 kB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def forbidden(cache: Path) -> Iterator[None]:
    """A place where no folder can be made, also not by root."""
    cache.write_text("a file")
    yield
    cache.unlink()
    cache.mkdir()


@pytest.mark.parametrize("hindered", [full_disk, forbidden])
def test_without_a_usable_cache_pickled_weights_are_served_with_one_warning(
    hindered: Any, folder: Path, tensors: Tensors, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pickled(folder, tensors)
    with hindered(cache):
        assert_equal(state(folder, cache), tensors)
    [warning] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.startswith(f"pytorch_model.bin cannot be converted to {cache} (")
    assert warning.endswith("and is loaded as it is; see conversion_cache_dir, --no-convert")
    assert [path.name for path in cache.iterdir() if path.name != "lock"] == []


def test_two_processes_that_convert_at_the_same_time_both_serve(folder: Path, tensors: Tensors, cache: Path) -> None:
    pickled(folder, tensors)
    command = [sys.executable, str(Path(__file__).parent / "convert_program.py"), str(folder), str(cache)]
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=os.environ | {"PYTHONPATH": str(PROJECT_ROOT)},
                )
            )
            for _ in range(2)
        ]
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        assert [process.communicate(timeout=60)[0] for process in processes] == [f"{len(tensors)}\n"] * 2
    assert sorted(path.suffix for path in cache.iterdir()) == ["", ".safetensors"]


def flip(path: Path) -> None:
    """Change one byte in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)


def truncated(folder: Path, tensors: Tensors) -> None:
    pickled(folder, tensors)
    os.truncate(folder / "pytorch_model.bin", 100_000)


def truncated_long_ago(folder: Path, tensors: Tensors) -> None:
    pickled_long_ago(folder, tensors)
    os.truncate(folder / "pytorch_model.bin", 100_000)


def truncated_safetensors(folder: Path, tensors: Tensors) -> None:
    save_file(tensors, folder / "model.safetensors")
    os.truncate(folder / "model.safetensors", 100_000)


class Code:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("code-has-run",)


REFUSED: dict[str, tuple[Callable[[Path, Tensors], Any], str]] = {
    "truncated": (truncated, "damaged or incomplete .*; download it again"),
    "truncated, old format": (truncated_long_ago, "damaged or incomplete .*; download it again"),
    "truncated safetensors": (truncated_safetensors, "model.safetensors .*damaged or incomplete .*; download it again"),
    "empty": (lambda folder, _: (folder / "pytorch_model.bin").touch(), "damaged or incomplete"),
    "no safetensors": (lambda folder, _: (folder / "model.safetensors").write_bytes(b"\0" * 64), "damaged or incompl"),
    "code": (
        lambda folder, t: pickled(folder, t | {"x": Code()}),
        r"refused: unpickling it needs (posix|nt)\.mkdir, and",
    ),
    "code, old format": (
        lambda folder, t: pickled_long_ago(folder, t | {"x": Code()}),
        r"refused: unpickling it needs ",
    ),
    "a module": (
        lambda folder, _: torch.save(torch.nn.Linear(2, 2), folder / "pytorch_model.bin"),
        r"torch\.nn\.modul",
    ),
    "a list": (
        lambda folder, _: torch.save([torch.ones(1)], folder / "pytorch_model.bin"),
        "contains a list, not named tensors",
    ),
    "Git LFS": (
        lambda folder, _: (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n"),
        "a pointer of Git LFS, not the weights; run `git lfs pull`",
    ),
    "no weights": (
        lambda folder, _: None,
        r"'.*checkpoint' has no weights: none of model\.safetensors, model\.s.*no ONNX",
    ),
    "a folder": (lambda folder, _: (folder / "model.safetensors").mkdir(), "has no weights"),
    "ONNX": (lambda folder, _: (folder / "model.onnx").touch(), r"has only model\.onnx; set runtime=onnxruntime$"),
    "a shard is missing": (
        lambda folder, t: (safetensors_in_shards(folder, t), (folder / "model-2-of-2.safetensors").unlink()),
        r"lacks model-2-of-2\.safetensors, which model\.safetensors\.index\.json names",
    ),
    "a shard elsewhere": (
        lambda folder, _: (folder / "pytorch_model.bin.index.json").write_text('{"weight_map": {"a": "../b.bin"}}'),
        "names a file that is not in its folder",
    ),
    "no index": (lambda folder, _: (folder / "pytorch_model.bin.index.json").write_text("[]"), "is not a JSON object"),
    "wrong config": (
        lambda folder, t: (pickled(folder, t), (folder / "gliner_config.json").write_text("{model}")),
        r"gliner_config\.json is not JSON: Expecting property name",
    ),
    "no object": (
        lambda folder, t: (pickled(folder, t), (folder / "gliner_config.json").write_text("[]")),
        r"gliner_config\.json is not a JSON object",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_files_that_cannot_be_loaded_are_refused_in_one_line(
    what: str, folder: Path, tensors: Tensors, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spoil, reason = REFUSED[what]
    monkeypatch.chdir(tmp_path)
    spoil(folder, tensors)
    with pytest.raises(ModelError, match=reason) as refused:
        state(folder, cache)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "code-has-run").exists()
    assert not list(cache.glob("*.safetensors"))


@contextmanager
def unprivileged() -> Iterator[None]:
    """Root may read everything: the block runs as nobody."""
    user = os.geteuid()
    os.seteuid(user or 65534)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("closed", ["gliner_config.json", "pytorch_model.bin", "."])
def test_what_may_not_be_read_is_refused_in_one_line(closed: str, original: Path, cache: Path) -> None:
    with TemporaryDirectory() as temporary:  # pytest's own folders are closed to others
        Path(temporary).chmod(0o755)
        folder = Path(shutil.copytree(original, Path(temporary, "checkpoint")))
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
        (folder / closed).chmod(0)
        with unprivileged(), pytest.raises(ModelError, match="cannot be read: Permission denied"):
            state(folder, cache)
        if closed == ".":
            with (
                unprivileged(),
                pytest.raises(SettingsError, match=r"^model: the folder cannot be read: Permission de"),
            ):
                Settings.load({"model": str(folder)})
        folder.chmod(0o700)


def test_a_checkpoint_without_some_tensors_is_refused(folder: Path, tensors: Tensors, cache: Path) -> None:
    """gliner leaves them random."""
    save_file(
        {name: tensor for name, tensor in tensors.items() if "span_rep" not in name}, folder / "model.safetensors"
    )
    with pytest.raises(ModelError, match=r"model\.safetensors lacks \d+ of the model's tensors: span_rep_layer\."):
        state(folder, cache)
