"""A ``vllm serve ...`` command line in; overrides of the configuration, and what of it is not modelled, out.

Flags are those of vLLM 0.21.0 (``engine/arg_utils.py``, ``utils/argparse_utils.py``): underscores for dashes,
``--flag=value``, ``-cc.key=value``, numbers such as 8k. Settings that the command leaves out are what
``vllm serve`` takes.
"""

import json
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from artifact.analysis.recommend.serve_values import KEY, count, fraction, mode, nested
from artifact.config import groups, load
from artifact.errors import InputError
from artifact.schema import HardwareConfig, Mode

_SHORT = {"-tp": "--tensor-parallel-size", "-q": "--quantization", "-cc": "--compilation-config",
          "-ac": "--attention-config", "-sc": "--speculative-config"}  # fmt: skip
_COUNTS = {
    "--max-num-seqs": "max_num_seqs",
    "--max-num-batched-tokens": "max_num_batched_tokens",
    "--num-gpu-blocks-override": "num_gpu_blocks_override",
    "--block-size": "block_size",
    "--tensor-parallel-size": "tensor_parallel_size",
    "--max-cudagraph-capture-size": "max_cudagraph_capture_size",
    "--max-loras": "max_loras",
}
_SWITCHES = {"--enable-prefix-caching": "enable_prefix_caching", "--async-scheduling": "async_scheduling"}
# They move no step's time; the number of values each takes.
_HARMLESS = {"--host": 1, "--port": 1, "--uds": 1, "--api-key": 1, "--served-model-name": 1, "--trust-remote-code": 0,
             "--download-dir": 1, "--seed": 1, "--disable-log-stats": 0, "--enable-log-requests": 0,
             "--no-enable-log-requests": 0, "--revision": 1, "--tokenizer": 1, "--hf-token": 1, "--chat-template": 1,
             "--uvicorn-log-level": 1, "--enable-auto-tool-choice": 0, "--tool-call-parser": 1,
             "--reasoning-parser": 1, "--enable-chunked-prefill": 0, "--cudagraph-metrics": 0}  # fmt: skip
_SETS_MODE = {"--compilation-config", "--optimization-level", "--enforce-eager", "--no-enforce-eager"}
_LEVELS = {"0": Mode.EAGER, "1": Mode.PIECEWISE, "2": Mode.FULL_AND_PIECEWISE, "3": Mode.FULL_AND_PIECEWISE}
_LARGE_GPU_BYTES = 70 * 2**30


@dataclass
class ServeCommand:
    """What a command asks for. ``kept`` are its words without those that set the mode."""

    overrides: list[str] = field(default_factory=list)
    mode: Mode = Mode.FULL_AND_PIECEWISE  # as the command sets it, or vLLM's default
    kv_bytes: int | None = None  # --kv-cache-memory-bytes
    outside: list[str] = field(default_factory=list)  # what no evidence covers
    warnings: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    compilation: dict[str, Any] = field(default_factory=dict)  # its compilation config, less the mode


def quoted(override: str) -> str:
    """Return ``override`` with the command of ``recommend.serve_command=`` quoted for Hydra, others as they are."""
    key, equals, text = override.partition("=")
    if key != KEY or not equals or text in ("null", "") or (text[0] == text[-1] and text[0] in "'\""):
        return override
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", text)
    return f"{key}='{escaped}'"


def parse(command: str, hardware: HardwareConfig) -> ServeCommand:
    """Return what ``command`` asks for on ``hardware``. Raises InputError, one line that names the flag."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"{KEY}: cannot be read ({str(error).lower()})") from None
    return _Reader(words).read(hardware)


class _Reader:
    """Takes the words of a command one flag after the other; ``server`` holds settings by the name in conf/server."""

    def __init__(self, words: Sequence[str]) -> None:
        self._rest = list(words)
        self._inline: str | None = None  # the value of --flag=value
        self._found = ServeCommand()
        self._server: dict[str, Any] = {}
        self._model: str | None = None
        self._backend: str | None = None
        self._level: Mode | None = None
        self._asked: Mode | None = None
        self._eager = False
        self._special: dict[str, Callable[[str, list[str]], None]] = {
            "--compilation-config": self._compilation,
            "--optimization-level": lambda _name, _path: self._set_level(self._value("--optimization-level")),
            "--enforce-eager": lambda _name, _path: setattr(self, "_eager", True),
            "--no-enforce-eager": lambda _name, _path: setattr(self, "_eager", False),
            "--cudagraph-capture-sizes": self._sizes,
            "--max-model-len": self._max_model_len,
            "--gpu-memory-utilization": self._utilization,
            "--kv-cache-memory-bytes": lambda name, _: setattr(self._found, "kv_bytes", count(name, self._value(name))),
            "--model": lambda name, _: setattr(self, "_model", self._value(name)),
            "--attention-backend": lambda name, _: setattr(self, "_backend", self._value(name)),
            "--attention-config": self._attention,
            "--quantization": self._outside,
            "--kv-cache-dtype": self._outside,
            "--speculative-config": self._speculative,
        }

    def read(self, hardware: HardwareConfig) -> ServeCommand:
        """Return what all the words ask for."""
        self._skip_to_flags()
        while self._rest:
            before = list(self._rest)
            if not self._take(self._rest.pop(0)):
                self._found.kept += before[: len(before) - len(self._rest)]
        self._complete(hardware)
        return self._found

    def _skip_to_flags(self) -> None:
        """Take the variables before the command, and ``vllm serve`` or its module."""
        found = self._found
        while self._rest and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*=.*", self._rest[0]):
            found.kept.append(self._rest.pop(0))
            name, _, value = found.kept[-1].partition("=")
            if name == "VLLM_ATTENTION_BACKEND":
                self._backend = value
                found.warnings.append(
                    f"vLLM 0.21.0 does not read {name}: write --attention-backend {value}, which this answer is for"
                )
            else:
                found.warnings.append(f"{found.kept[-1]}: not modelled")
        if len(self._rest) > 1 and self._rest[0].rsplit("/", 1)[-1] == "vllm" and self._rest[1] == "serve":
            length = 2
        elif self._rest[1:3] == ["-m", "vllm.entrypoints.openai.api_server"]:
            length = 3
        else:
            start = " ".join(self._rest[:3]) or "empty"
            raise InputError(f"{KEY}: must be a `vllm serve MODEL ...` command, not {start!r}")
        found.kept += self._rest[:length]
        self._rest = self._rest[length:]

    def _take(self, word: str) -> bool:
        """Take one flag with its values; return whether it is one that sets the mode, or may."""
        if not word.startswith("-"):
            if self._model is not None:
                raise InputError(f"{KEY}: {word!r} is neither a flag nor a flag's value; the model is {self._model!r}")
            self._model = word
            return False
        if word.startswith("-O"):
            self._inline = word[2:].removeprefix("=") or None
            self._set_level(self._value("-O"))
            return True
        flag, equals, inline = word.partition("=")
        self._inline = inline if equals else None
        name, *path = flag.split(".")
        name = _SHORT.get(name, name)
        name = name.replace("_", "-") if name.startswith("--") else name
        if name in self._special:
            self._special[name](name, path)
        elif name in _COUNTS:
            self._server[_COUNTS[name]] = count(name, self._value(name))
        elif name.replace("--no-", "--") in _SWITCHES:
            self._server[_SWITCHES[name.replace("--no-", "--")]] = not name.startswith("--no-")
        elif name in _HARMLESS:
            for _ in range(_HARMLESS[name]):
                self._value(name)
        else:
            has_value = self._inline is not None or (self._rest and not self._rest[0].startswith("-"))
            given = f" {self._value(name)}" if has_value else ""
            unknown = ".".join([name, *path])
            self._found.warnings.append(f"{unknown}{given}: not modelled, the answer is without it")
        return name in _SETS_MODE

    def _value(self, name: str) -> str:
        if self._inline is not None:
            return self._inline
        if not self._rest or self._rest[0].startswith("--"):
            raise InputError(f"{KEY}: {name} needs a value")
        return self._rest.pop(0)

    def _set_level(self, text: str) -> None:
        if text not in _LEVELS:
            raise InputError(f"{KEY}: -O takes a level of 0 to 3, not {text!r}; JSON belongs to --compilation-config")
        self._level = _LEVELS[text]

    def _sizes(self, name: str, _path: list[str]) -> None:
        sizes = [self._value(name)]
        while self._rest and self._rest[0].isdigit():
            sizes.append(self._rest.pop(0))
        self._server["cudagraph_capture_sizes"] = [count(name, size) for size in sizes]

    def _max_model_len(self, name: str, _path: list[str]) -> None:
        text = self._value(name)
        self._server["max_model_len"] = None if text in ("-1", "auto") else count(name, text)

    def _utilization(self, name: str, _path: list[str]) -> None:
        self._server["gpu_memory_utilization"] = fraction(name, self._value(name))

    def _outside(self, name: str, _path: list[str]) -> None:
        if (kind := self._value(name)) not in ("auto", "none", "None"):
            self._found.outside.append(f"{name} {kind}")

    def _attention(self, name: str, path: list[str]) -> None:
        for key, value in nested(name, path, self._value(name)).items():
            if key == "backend":
                self._backend = str(value)
            else:
                self._found.warnings.append(f"{name} {key}: not modelled, the answer is without it")

    def _speculative(self, name: str, path: list[str]) -> None:
        if "speculative decoding" not in self._found.outside:
            self._found.outside.append("speculative decoding")
        tokens = nested(name, path, self._value(name)).get("num_speculative_tokens")
        if tokens is not None:
            self._server["num_speculative_tokens"] = count(f"{name} num_speculative_tokens", str(tokens))

    def _compilation(self, name: str, path: list[str]) -> None:
        for key, value in nested(name, path, self._value(name)).items():
            if key == "cudagraph_mode":
                self._asked = mode(value)
                continue
            self._found.compilation[key] = value
            if key in ("cudagraph_capture_sizes", "max_cudagraph_capture_size"):
                self._server[key] = value
            else:
                self._found.warnings.append(f"{name} {key}: not modelled, the answer is without it")

    def _complete(self, hardware: HardwareConfig) -> None:
        """Fill in vLLM's own defaults (``get_batch_defaults`` for a server) and write the overrides."""
        found = self._found
        found.mode = Mode.EAGER if self._eager else self._asked or self._level or found.mode
        longest = self._complete_model()
        large = hardware.memory_bytes >= _LARGE_GPU_BYTES and hardware.gpu != "a100"
        length = self._server.pop("max_model_len", None) or longest
        budget = self._server.setdefault("max_num_batched_tokens", 8192 if large else 2048)
        self._server.setdefault("max_num_seqs", min(1024 if large else 256, budget))
        defaults = {"gpu_memory_utilization": 0.92, "enable_prefix_caching": True, "max_model_len": length}
        found.overrides.append("server=serve_default")
        if self._backend is not None:
            # Presets that pin FlashAttention's version are not vLLM's own names.
            presets = {name: load([f"backend={name}"]).backend for name in groups()["backend"]}
            known = {str(each.name): name for name, each in presets.items() if each.flash_attn_version is None}
            if self._backend.upper() not in known:
                raise InputError(f"{KEY}: attention backend {self._backend!r} is not known; known: {', '.join(known)}")
            found.overrides.append(f"backend={known[self._backend.upper()]}")
        for key, value in (defaults | self._server).items():
            found.overrides.append(f"server.{key}={json.dumps(value, separators=(',', ':'))}")

    def _complete_model(self) -> int:
        """Take the preset of the model where there is one, and return the longest sequence."""
        name, longest = _models().get((self._model or "").lower(), (None, 8192))
        if self._model is None:
            self._found.warnings.append("the command names no model: that of the configuration is taken")
        elif name is None:
            known = ", ".join(sorted(preset for preset, _ in _models().values()))
            self._found.outside.append(f"model {self._model}, known are {known}")
        else:
            self._found.overrides.append(f"model={name}")
        return longest


@cache
def _models() -> dict[str, tuple[str, int]]:
    """Return each preset's name and longest sequence by the model's name at Hugging Face, in lower case."""
    configs = [load([f"model={name}"]).model for name in groups()["model"]]
    longest = {config.name: config.architecture.get("max_position_embeddings") for config in configs}
    return {config.hf_id.lower(): (config.name, int(str(longest[config.name]))) for config in configs}
