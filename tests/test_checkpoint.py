"""The generated checkpoint: names and shapes that vLLM loads, numbers of the right spread, written once and whole."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifact.config import load
from artifact.engines import checkpoint
from artifact.engines.checkpoint import bfloat16, tensors, write_checkpoint
from artifact.errors import EnvironmentLacks, InputError
from artifact.schema import ModelConfig


def model(preset: str = "qwen3-4-layers", **architecture: object) -> ModelConfig:
    found = load([f"model={preset}"]).model
    small = {"hidden_size": 64, "intermediate_size": 96, "vocab_size": 500, "num_hidden_layers": 2, **architecture}
    return found.model_copy(update={"architecture": found.architecture | small})


def contents(file: Path) -> dict[str, np.ndarray]:
    """The file as a reader of the format sees it: header length, header, numbers without gaps."""
    data = file.read_bytes()
    size = int.from_bytes(data[:8], "little")
    assert size % 8 == 0
    header = json.loads(data[8 : 8 + size])
    assert header.pop("__metadata__")["format"] == "pt"
    body, end, found = data[8 + size :], 0, {}
    for name, entry in header.items():
        begin, stop = entry["data_offsets"]
        assert (entry["dtype"], begin) == ("BF16", end)
        bits = np.frombuffer(body[begin:stop], "<u2").astype(np.uint32) << 16
        found[name], end = bits.view(np.float32).reshape(entry["shape"]), stop
    assert end == len(body)
    return found


def test_qwen3_has_its_norms_and_ties_its_embeddings(tmp_path: Path) -> None:
    found = contents(write_checkpoint(model(), tmp_path))
    layer = {name.removeprefix("model.layers.1."): array.shape for name, array in found.items() if "layers.1." in name}
    assert layer == {
        "self_attn.q_proj.weight": (2048, 64), "self_attn.k_proj.weight": (1024, 64),
        "self_attn.v_proj.weight": (1024, 64), "self_attn.o_proj.weight": (64, 2048),
        "self_attn.q_norm.weight": (128,), "self_attn.k_norm.weight": (128,),
        "mlp.gate_proj.weight": (96, 64), "mlp.up_proj.weight": (96, 64), "mlp.down_proj.weight": (64, 96),
        "input_layernorm.weight": (64,), "post_attention_layernorm.weight": (64,),
    }  # fmt: skip
    assert [name for name in found if "layers" not in name] == ["model.embed_tokens.weight", "model.norm.weight"]
    for name, array in found.items():
        if "norm" in name:
            assert (array == 1).all()
        else:
            assert array.std() == pytest.approx(0.02, rel=0.05)
            assert abs(array.mean()) < 0.001


def test_llama_has_a_head_and_biases_of_zero_where_its_shape_says_so() -> None:
    plain = [tensor.name for tensor in tensors(model("llama-3.1-8b"))]
    assert plain[-1] == "lm_head.weight"
    assert not [name for name in plain if name.endswith("bias") or "q_norm" in name]
    biased = [
        tensor for tensor in tensors(model("llama-3.1-8b", attention_bias=True, mlp_bias=True)) if tensor.fill == 0
    ]
    assert len(biased) == 2 * 7
    assert {len(tensor.shape) for tensor in biased} == {1}


def test_every_dense_preset_has_as_many_bytes_as_its_shape_says() -> None:
    for name in ("qwen3-0.6b", "qwen3-8b", "llama-3.2-1b", "qwen3-4-layers"):
        preset = load([f"model={name}"]).model
        weights = sum(int(np.prod(tensor.shape)) for tensor in tensors(preset) if tensor.fill is None)
        assert 2 * weights == preset.weight_bytes


def test_a_family_that_is_not_known_is_named() -> None:
    with pytest.raises(InputError, match=r"model\.weights=generated: model qwen3-30b-a3b is .*Moe"):
        list(tensors(load(["model=qwen3-30b-a3b"]).model))


def test_it_is_written_once_and_again_if_it_is_not_whole(tmp_path: Path) -> None:
    file = write_checkpoint(model(), tmp_path)
    first, at = file.read_bytes(), file.stat().st_ino
    assert write_checkpoint(model(), tmp_path).stat().st_ino == at
    file.write_bytes(first[:-2])
    assert write_checkpoint(model(), tmp_path).read_bytes() == first
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_numbers_do_not_depend_on_how_many_are_drawn_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = write_checkpoint(model(), tmp_path).read_bytes()
    monkeypatch.setattr(checkpoint, "_CHUNK", 1000)
    (tmp_path / "again").mkdir()
    assert write_checkpoint(model(), tmp_path / "again").read_bytes() == first


def test_a_folder_that_takes_nothing_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentLacks, match=r"model\.safetensors: cannot be written .*VLLM_CACHE_ROOT"):
        write_checkpoint(model(), tmp_path / "absent")


@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=20))
def test_bfloat16_is_the_nearest(values: list[float]) -> None:
    given_ = np.array(values, dtype=np.float32)
    bits = bfloat16(given_).astype(np.uint32)
    near = (bits << 16).view(np.float32)
    for step in (-1, 1):
        other = ((bits + np.uint32(step % 2**32)) << 16).view(np.float32).astype(np.float64)
        assert (np.abs(near.astype(np.float64) - given_) <= np.abs(other - given_))[np.isfinite(other)].all()
