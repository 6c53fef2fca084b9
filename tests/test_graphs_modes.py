"""Mode resolution: the table of backends and GPUs, hollow modes, refusals."""

import pytest

from artifact.config import load
from artifact.errors import CellFailed, InputError
from artifact.graphs.modes import GraphSupport, graph_support, resolve, resolve_mode
from artifact.schema import BackendConfig, Mode

ALWAYS, BATCH = GraphSupport.ALWAYS, GraphSupport.UNIFORM_BATCH
SINGLE, NEVER = GraphSupport.UNIFORM_SINGLE_TOKEN_DECODE, GraphSupport.NEVER
A100, L4, H200, B200, RTX50 = (8, 0), (8, 9), (9, 0), (10, 0), (12, 0)


def backend(name, version=None):
    return BackendConfig(name=name, flash_attn_version=version)


@pytest.mark.parametrize(
    ("name", "version", "gpu", "support"),
    [
        ("FLASH_ATTN", None, A100, BATCH),
        ("FLASH_ATTN", None, L4, BATCH),
        ("FLASH_ATTN", None, H200, ALWAYS),
        ("FLASH_ATTN", 2, H200, BATCH),
        ("FLASH_ATTN", 4, H200, BATCH),
        ("FLASH_ATTN", None, B200, BATCH),
        ("FLASH_ATTN", None, RTX50, BATCH),
        ("FLASHINFER", None, A100, SINGLE),
        ("FLASHINFER", None, H200, SINGLE),
        ("FLASHINFER", None, B200, BATCH),
        ("FLASHINFER", None, RTX50, SINGLE),
        ("TRITON_ATTN", None, L4, ALWAYS),
        ("FLEX_ATTENTION", None, B200, ALWAYS),
    ],
)
def test_support_of_backend_on_gpu(name, version, gpu, support):
    assert graph_support(backend(name, version), gpu) is support


@pytest.mark.parametrize(
    ("name", "version", "gpu", "message"),
    [
        ("FLASH_ATTN", 3, A100, r"backend.flash_attn_version=3: .* 8\.0; take 2, or null"),
        ("FLASH_ATTN", 3, B200, "take 2 or 4"),
        ("FLASH_ATTN", 4, RTX50, r"12\.0; take 2, or"),
        ("FLASH_ATTN", None, (7, 5), "backend=flash_attn: does not run"),
        ("FLASHINFER", None, (7, 0), "backend=flashinfer: does not run"),
        ("FLASHINFER", 2, H200, "null unless backend=flash_attn"),
    ],
)
def test_backend_that_the_gpu_lacks_is_refused(name, version, gpu, message):
    with pytest.raises(InputError, match=message) as caught:
        graph_support(backend(name, version), gpu)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("support", "asked", "becomes", "hollow"),
    [
        (ALWAYS, "FULL", "FULL", False),
        (BATCH, "FULL", "FULL_AND_PIECEWISE", True),
        (SINGLE, "FULL", "FULL_AND_PIECEWISE", True),
        (SINGLE, "FULL_DECODE_ONLY", "FULL_DECODE_ONLY", False),
        (SINGLE, "FULL_AND_PIECEWISE", "FULL_AND_PIECEWISE", False),
        (NEVER, "FULL_DECODE_ONLY", "PIECEWISE", True),
        (NEVER, "FULL_AND_PIECEWISE", "PIECEWISE", False),
        (NEVER, "PIECEWISE", "PIECEWISE", False),
        (NEVER, "NONE", "NONE", False),
        (NEVER, "EAGER", "NONE", False),
    ],
)
def test_resolution_table(support, asked, becomes, hollow):
    found = resolve_mode(Mode(asked), support, "BACKEND")
    assert (found.resolved, found.hollow) == (Mode(becomes), hollow)
    assert (found.reason is None) == (asked == becomes)


@pytest.mark.parametrize(
    ("asked", "becomes", "hollow"),
    [
        ("FULL", "PIECEWISE", True),
        ("FULL_DECODE_ONLY", "PIECEWISE", True),
        ("FULL_AND_PIECEWISE", "PIECEWISE", False),
        ("PIECEWISE", "PIECEWISE", False),
    ],
)
def test_speculative_decoding_on_single_token_support(asked, becomes, hollow):
    found = resolve_mode(Mode(asked), SINGLE, "FLASHINFER", q=3)
    assert (found.resolved, found.hollow) == (Mode(becomes), hollow)
    assert resolve_mode(Mode(asked), BATCH, "FLASHINFER", q=3).resolved is not Mode.NONE


@pytest.mark.parametrize("asked", ["PIECEWISE", "FULL_AND_PIECEWISE", "FULL"])
def test_sequence_parallelism_leaves_no_piecewise_graphs(asked):
    server = load(["server.tensor_parallel_size=2", "server.enable_sequence_parallelism=true"]).server
    assert resolve(Mode(asked), backend("TRITON_ATTN"), H200, server).resolved is Mode.FULL
    found = resolve(Mode(asked), backend("FLASHINFER"), H200, server)
    assert (found.resolved, found.hollow) == (Mode.FULL_DECODE_ONLY, False)


def test_sequence_parallelism_needs_two_gpus():
    server = load(["server.enable_sequence_parallelism=true"]).server
    assert resolve(Mode.PIECEWISE, backend("TRITON_ATTN"), H200, server).resolved is Mode.PIECEWISE


def test_full_without_any_support_is_refused_as_a_result():
    with pytest.raises(CellFailed, match="try mode=piecewise") as caught:
        resolve_mode(Mode.FULL, NEVER, "TRITON_MLA")
    assert caught.value.status == "refused"
