"""The public traces are read as they are published; skipped where they are not beside the checkout."""

from pathlib import Path

import numpy as np
import pytest

from artifact import config
from artifact.workloads.traces import describe, read

SHARED = Path(__file__).parents[1].parent / "shared" / "traces"


@pytest.mark.parametrize(
    ("name", "kind", "requests", "first", "span_s"),
    [
        ("azure2023/AzureLLMInferenceTrace_conv.csv", "azure", 19_366, (374, 44), 3501.721937),
        ("azure2023/AzureLLMInferenceTrace_code.csv", "azure", 8_819, (4808, 10), 3435.948056),
        ("mooncake/conversation_trace.jsonl", "mooncake", 12_031, (6758, 500), 3536.999),
    ],
)
def test_public_traces(name: str, kind: str, requests: int, first: tuple[int, int], span_s: float) -> None:
    if not (SHARED / name).exists():
        pytest.skip("the public traces are not beside the checkout")
    trace = read(config.load([f"trace.path={SHARED / name}"]).trace)
    assert (trace.format, len(trace), trace.dropped) == (kind, requests, ())
    assert (trace.prompt_tokens[0], trace.output_tokens[0]) == first
    assert trace.arrival_s[0] == 0
    assert trace.arrival_s[-1] == pytest.approx(span_s, abs=1e-6)
    assert (np.diff(trace.arrival_s) >= 0).all()
    profile = describe(trace)["rate_profile"]
    assert sum(profile) == requests
