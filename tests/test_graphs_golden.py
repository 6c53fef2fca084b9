"""Dispatch recorded from vLLM on a GPU (tests/golden/dispatch_*.json) against ours."""

import json
from pathlib import Path

import pytest

from artifact.config import load
from artifact.graphs.dispatch import dispatcher
from artifact.graphs.modes import resolve
from artifact.schema import BackendConfig, Mode, ServerConfig

FILES = sorted((Path(__file__).parent / "golden").glob("dispatch_*.json"))


def server_with(changes):
    base = load(["server=study"]).server.model_dump()
    return ServerConfig.model_validate(base | changes)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_recorded_engine_agrees(file):
    golden = json.loads(file.read_text())
    server = server_with(golden["server"])
    backend = BackendConfig.model_validate(golden["backend"])
    requested, capability = Mode(golden["requested_mode"]), tuple(golden["compute_capability"])
    resolution = resolve(requested, backend, capability, server)
    graphs = dispatcher(server, resolution.resolved)
    assert golden["vllm"] == "0.21.0"
    assert (resolution.resolved.value, resolution.hollow) == (golden["resolved_mode"], golden["hollow"])
    assert list(graphs.sizes) == golden["capture_sizes"]
    assert graphs.keys == golden["keys"]
    assert graphs.captures(golden["model_layers"], resolution.hollow) == golden["captures"]
    assert set(golden["dispatch"]) == {"decode", "mixed"}
    for kind, rows in golden["dispatch"].items():
        assert rows, f"{file.name}: no {kind} steps recorded"
        ours = [[tokens, *graphs.dispatch(tokens, kind == "decode")] for tokens, _, _ in rows]
        assert ours == rows
