"""A model's shape in, a safetensors checkpoint of seeded Gaussian weights in its folder, written once, out.

Weights have the standard deviation that the model families themselves start from, norms are one and biases zero: so
answers depend on all of the context, which vLLM's dummy weights do not give. Written with numpy alone: the engine core
is forked from this process, and a pool of threads that torch had started here would not come along.
"""

import json
import math
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from artifact.errors import EnvironmentLacks, InputError
from artifact.schema import ModelConfig

SEED = 20260105
STD = 0.02
_DENSE = ("Qwen3ForCausalLM", "LlamaForCausalLM")
_CHUNK = 1 << 24  # numbers drawn at a time
_METADATA = {"format": "pt", "made": f"gaussian std {STD:g} seed {SEED}"}


class Tensor(NamedTuple):
    """A parameter's name as in the Hugging Face checkpoints, its shape, and how it is filled."""

    name: str
    shape: tuple[int, ...]
    fill: float | None = None  # null: Gaussian


def tensors(model: ModelConfig) -> Iterator[Tensor]:
    """Yield the parameters of a dense Qwen3 or Llama. Raises InputError, which names the key, for another family."""
    kind = model.architecture.get("architectures")
    if not isinstance(kind, list) or len(kind) != 1 or kind[0] not in _DENSE:
        raise InputError(
            f"model.weights=generated: model {model.name} is {kind}; weights are generated for {' and '.join(_DENSE)}"
        )
    hidden, vocabulary = _size(model, "hidden_size"), _size(model, "vocab_size")
    queries, keys = (_size(model, name) * model.head_dim for name in ("num_attention_heads", "num_key_value_heads"))
    inner = _size(model, "intermediate_size")
    yield Tensor("model.embed_tokens.weight", (vocabulary, hidden))
    for layer in range(model.layers):
        at = f"model.layers.{layer}"
        attention = {"q": (queries, hidden), "k": (keys, hidden), "v": (keys, hidden), "o": (hidden, queries)}
        for name, shape in attention.items():
            yield Tensor(f"{at}.self_attn.{name}_proj.weight", shape)
            # The bias of the output projection is Llama's alone.
            if model.architecture.get("attention_bias") and (name != "o" or kind[0] == "LlamaForCausalLM"):
                yield Tensor(f"{at}.self_attn.{name}_proj.bias", shape[:1], 0.0)
        if kind[0] == "Qwen3ForCausalLM":
            for name in ("q_norm", "k_norm"):
                yield Tensor(f"{at}.self_attn.{name}.weight", (model.head_dim,), 1.0)
        for name, shape in {"gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner)}.items():
            yield Tensor(f"{at}.mlp.{name}_proj.weight", shape)
            if model.architecture.get("mlp_bias"):
                yield Tensor(f"{at}.mlp.{name}_proj.bias", shape[:1], 0.0)
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield Tensor(f"{at}.{name}.weight", (hidden,), 1.0)
    yield Tensor("model.norm.weight", (hidden,), 1.0)
    if not model.architecture.get("tie_word_embeddings"):
        yield Tensor("lm_head.weight", (vocabulary, hidden))


def _size(model: ModelConfig, key: str) -> int:
    value = model.architecture.get(key)
    if not isinstance(value, int):
        raise InputError(f"model.architecture.{key}: must be a whole number to generate weights, not {value!r}")
    return value


def write_checkpoint(model: ModelConfig, folder: Path) -> Path:
    """Write ``model.safetensors`` into ``folder`` unless it is there already, whole and of this recipe; return it.

    bfloat16; each parameter depends on its name and the seed alone. Raises InputError for a family that is not known,
    EnvironmentLacks where the folder cannot be written.
    """
    wanted = list(tensors(model))
    header: dict[str, object] = {"__metadata__": _METADATA}
    end = 0
    for tensor in wanted:
        begin, end = end, end + 2 * math.prod(tensor.shape)
        header[tensor.name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    head = text + b" " * (-len(text) % 8)  # the numbers begin on a multiple of eight
    head = len(head).to_bytes(8, "little") + head
    target = folder / "model.safetensors"
    partial = folder / f"model.{os.getpid()}.partial"  # no name that vLLM would load
    try:
        if target.exists() and target.stat().st_size == len(head) + end and _begins(target, head):
            return target
        try:
            with partial.open("wb") as file:
                file.write(head)
                for tensor in wanted:
                    _write_numbers(file, tensor)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise EnvironmentLacks(
            f"{target}: cannot be written ({error.strerror or error}); free space, or set VLLM_CACHE_ROOT"
        ) from None
    return target


def _begins(file: Path, head: bytes) -> bool:
    with file.open("rb") as opened:
        return opened.read(len(head)) == head


def _write_numbers(file: BinaryIO, tensor: Tensor) -> None:
    rng = np.random.default_rng([SEED, zlib.crc32(tensor.name.encode())])
    left = math.prod(tensor.shape)
    while left:
        count = min(left, _CHUNK)
        if tensor.fill is None:
            values = rng.standard_normal(count, dtype=np.float32) * np.float32(STD)
        else:
            values = np.full(count, tensor.fill, dtype=np.float32)
        file.write(bfloat16(values).tobytes())
        left -= count


def bfloat16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Return the bits of finite ``values`` rounded to bfloat16, the upper half of a float32, ties to even."""
    bits = values.view(np.uint32)
    rounded: npt.NDArray[np.uint16] = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    return rounded
