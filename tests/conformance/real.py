"""A vLLM wheel in; its own size, resolution and dispatch code out, runnable without torch or a GPU.

Only the classes and functions that decide are taken out of the sources and executed, with what they import replaced
by stand-ins: none of vLLM's other code runs.
"""

import ast
import subprocess
import sys
import types
import zipfile
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "wheels"
PINNED = "0.21.0"


class Unreadable(Exception):
    """The wheel is missing, cannot be had, or lacks a name that the comparison needs."""


def cached_wheel(version):
    """Return the wheel of ``version`` in the cache, or None."""
    return next(iter(sorted(CACHE.glob(f"vllm-{version}-*.whl"))), None)


def fetch_wheel(version):
    """Return the wheel of ``version``, downloading it (about 250 MB) where it is not in the cache."""
    if wheel := cached_wheel(version):
        return wheel
    CACHE.mkdir(parents=True, exist_ok=True)
    print(f"downloading the vLLM {version} wheel (about 250 MB) into .cache/wheels", file=sys.stderr)
    # An environment made by uv has no pip of its own. The wheel is read and never installed: any platform's will do.
    pip = [sys.executable, "-m"] if find_spec("pip") else [sys.executable, "-m", "uv", "tool", "run"]
    platforms = [f"--platform=manylinux_2_{glibc}_x86_64" for glibc in (24, 28, 31, 35)]
    command = [*pip, "pip", "download", f"vllm=={version}", "--no-deps", "--only-binary=:all:", *platforms]
    done = subprocess.run([*command, "--quiet", "--dest", str(CACHE)], capture_output=True, text=True, check=False)
    wheel = cached_wheel(version)
    if done.returncode or wheel is None:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise Unreadable(f"vLLM {version} could not be downloaded: {last}; give --wheel FILE")
    return wheel


class Real:
    """The decisive parts of one vLLM version, as ``wheel`` has them."""

    def __init__(self, wheel):
        try:
            self._archive = zipfile.ZipFile(wheel)
        except (OSError, zipfile.BadZipFile) as error:
            raise Unreadable(f"{wheel}: {error}") from None
        with self._archive:
            self._load()

    def _tree(self, path):
        try:
            return ast.parse(self._archive.read(f"vllm/{path}"))
        except KeyError:
            raise Unreadable(f"the wheel has no vllm/{path}") from None

    def _take(self, path, names, space, inside=None):
        """Execute the definitions ``names`` of module ``path`` (of its class ``inside``) in ``space``."""
        body = self._tree(path).body
        if inside:
            holders = [node for node in body if isinstance(node, ast.ClassDef) and node.name == inside]
            if not holders:
                raise Unreadable(f"vllm/{path} has no class {inside}")
            body = holders[0].body
        found = [node for node in body if _name(node) in names]
        if lacking := set(names) - {_name(node) for node in found}:
            raise Unreadable(f"vllm/{path} has no {', '.join(sorted(lacking))}")
        # Annotations name types that are not taken along: this import keeps them from being evaluated.
        lazy = ast.ImportFrom("__future__", [ast.alias("annotations")], 0)
        module = ast.fix_missing_locations(ast.Module([lazy, *found], []))
        exec(compile(module, f"vllm/{path}", "exec"), space)  # noqa: S102

    def _load(self):
        import enum
        from collections.abc import Set as AbstractSet
        from dataclasses import dataclass, replace
        from itertools import product
        from typing import ClassVar

        quiet = SimpleNamespace(
            **dict.fromkeys(("error", "warning", "warning_once", "info", "info_once", "debug"), lambda *a, **k: None)
        )
        space = {"enum": enum, "Enum": enum.Enum, "dataclass": dataclass, "replace": replace, "product": product}
        space |= {"AbstractSet": AbstractSet, "ClassVar": ClassVar, "logger": quiet, "__name__": "conformance.taken"}
        self._take("utils/math_utils.py", ["round_up", "cdiv"], space)
        self._take("config/compilation.py", ["CUDAGraphMode", "CompilationMode"], space)
        self._take("v1/attention/backend.py", ["AttentionCGSupport"], space)
        # dataclass looks its module up to read annotations that are strings
        sys.modules.setdefault("conformance.taken", types.ModuleType("conformance.taken"))
        self._take("forward_context.py", ["BatchDescriptor"], space)
        self._take("lora/utils.py", ["get_captured_lora_counts"], space)
        compilation = dict(space)
        methods = ["resolve_cudagraph_mode_and_sizes", "adjust_cudagraph_sizes_for_spec_decode", "_attention_ops"]
        methods += ["post_init_cudagraph_sizes", "splitting_ops_contain_attention", "set_splitting_ops_for_v1"]
        methods += ["is_attention_compiled_piecewise"]
        self._take("config/compilation.py", methods, compilation, inside="CompilationConfig")
        config = dict(space)
        sizes = ["_set_cudagraph_sizes", "update_sizes_for_sequence_parallelism"]
        self._take("config/vllm.py", sizes, config, inside="VllmConfig")
        self._take("v1/cudagraph_dispatcher.py", ["CudagraphDispatcher"], space)
        self._flash = dict(space)
        self._take(
            "v1/attention/backends/fa_utils.py", ["get_flash_attn_version", "is_fa_version_supported"], self._flash
        )
        self._interface = {f"FA{n}_AVAILABLE": True for n in (2, 3, 4)}
        names = [f"_is_fa{n}_supported" for n in (2, 3, 4)]
        names += ["is_fa_version_supported", "fa_version_unsupported_reason"]
        self._take("vllm_flash_attn/flash_attn_interface.py", names, self._interface)
        self.Mode, self.Support, self.Dispatcher = (
            space[name] for name in ("CUDAGraphMode", "AttentionCGSupport", "CudagraphDispatcher")
        )
        self.lora_counts = space["get_captured_lora_counts"]
        self._compile = space["CompilationMode"].VLLM_COMPILE
        self._compilation = type("Compilation", (SimpleNamespace,), {name: compilation[name] for name in methods})
        self._config = type("Config", (SimpleNamespace,), {name: config[name] for name in sizes})

    def config(self, mode, server):
        """Return a stand-in for VllmConfig with ``server``'s settings: sizes set, nothing resolved yet."""
        sizes = server.cudagraph_capture_sizes
        passes = SimpleNamespace(
            enable_sp=server.enable_sequence_parallelism and server.tensor_parallel_size > 1,
            fuse_attn_quant=False,
            fuse_gemm_comms=False,
            fuse_rope_kvcache=False,
        )
        compilation = self._compilation(
            mode=self._compile,
            cudagraph_mode=self.Mode[mode],
            cudagraph_capture_sizes=None if sizes is None else list(sizes),
            max_cudagraph_capture_size=server.max_cudagraph_capture_size,
            cudagraph_specialize_lora=server.cudagraph_specialize_lora,
            pass_config=passes,
            splitting_ops=None,
            use_inductor_graph_partition=False,
            compile_sizes=[],
            backend="inductor",
        )
        speculative, lora = None, None
        if server.num_speculative_tokens:
            speculative = SimpleNamespace(num_speculative_tokens=server.num_speculative_tokens)
        if server.max_loras:
            active = server.specialize_active_lora
            lora = SimpleNamespace(max_loras=server.max_loras, specialize_active_lora=active)
        config = self._config(
            model_config=SimpleNamespace(enforce_eager=False),
            compilation_config=compilation,
            scheduler_config=SimpleNamespace(
                max_num_seqs=server.max_num_seqs, max_num_batched_tokens=server.max_num_batched_tokens
            ),
            parallel_config=SimpleNamespace(tensor_parallel_size=server.tensor_parallel_size),
            speculative_config=speculative,
            lora_config=lora,
            performance_mode="balanced",
        )
        config._set_cudagraph_sizes()
        compilation.set_splitting_ops_for_v1("allgather_reducescatter", 1)
        return config

    def dispatcher(self, mode, server, support):
        """Return (resolved mode's name, sizes, dispatcher), resolved for a backend of ``support``."""
        config = self.config(mode, server)
        q = 1 + server.num_speculative_tokens
        with _module("vllm.v1.attention.backend", AttentionCGSupport=self.Support):
            resolved = config.compilation_config.resolve_cudagraph_mode_and_sizes(
                self.Support[support], "BACKEND", q, server.tensor_parallel_size
            )
        dispatcher = self.Dispatcher(config)
        dispatcher.initialize_cudagraph_keys(resolved, q)
        return resolved.name, tuple(config.compilation_config.cudagraph_capture_sizes), dispatcher

    def flash_attn_version(self, pinned, capability):
        """Return FlashAttention's version on a GPU of ``capability`` (major, minor); None where there is none."""
        major, minor = capability
        platform = SimpleNamespace(
            is_xpu=lambda: False,
            is_rocm=lambda: False,
            get_device_capability=lambda: SimpleNamespace(major=major, minor=minor),
            has_device_capability=lambda least: major * 10 + minor >= least,
            is_device_capability_family=lambda family: major == family // 10,
        )
        config = SimpleNamespace(attention_config=SimpleNamespace(flash_attn_version=pinned))
        self._flash |= {"current_platform": platform, "envs": SimpleNamespace(VLLM_BATCH_INVARIANT=False)}
        with (
            _module("vllm.config", get_current_vllm_config_or_none=lambda: config),
            _module("vllm.platforms", current_platform=platform),
            _module("vllm.vllm_flash_attn.flash_attn_interface", **self._interface),
        ):
            return self._flash["get_flash_attn_version"]()


def _name(node):
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    return getattr(node, "name", None)


def _module(name, **content):
    """Put a stand-in module where vLLM's functions import from, for the length of a ``with``."""
    module = types.ModuleType(name)
    module.__dict__.update(content)
    return patch.dict(sys.modules, {name: module})
