"""Contrasts at equal pace of the host: against known truth, and against what the host alone would make of them."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifact.analysis.contrasts import sweep
from artifact.analysis.contrasts.host_pace import FEWEST, adjusted, at_equal_pace, pace_us
from artifact.analysis.contrasts.sweep import DEFAULT, Sweep
from artifact.analysis.host_pace_table import host_pace_table
from tests.sweep_support import cell, launches

METRIC = "tpot_p50_ms"


def swept(rng: np.random.Generator, blocks: int, truth: float = 0.8, noise: float = 0.01, *, own: bool = True) -> Sweep:
    """Return blocks in which every arm meets a host of its own: latency is 5 ms x truth x pace^1.5."""
    rows = []
    for block in range(blocks):
        for arm, ratio in (("FULL", truth), (DEFAULT, 1.0)):
            pace = float(rng.choice([1.0, 1.5]) * rng.uniform(0.95, 1.05))
            value = 5 * ratio * pace**1.5 * math.exp(noise * rng.normal())
            taken = {"launch_us_before": 7 * pace, "launch_us_after": 7 * pace if own else None}
            rows.append(cell(arm, str(block), dict.fromkeys(sweep.METRICS, value), **taken))
    frame = pd.DataFrame(rows)
    return sweep.of(frame, launches(frame))


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.floats(0.5, 2.0), st.floats(0.01, 2), st.integers(FEWEST, 12))
def test_a_line_without_noise_is_found(seed: int, truth: float, slope: float, blocks: int) -> None:
    x = np.random.default_rng(seed).normal(size=blocks)
    found = adjusted(np.column_stack([math.log(truth) + slope * x, x]))
    assert found is not None
    assert found[:3] == pytest.approx((truth,) * 3, rel=1e-5)
    assert adjusted(np.column_stack([np.zeros(blocks), x])) is None


def test_hosts_that_differ_hide_a_contrast_that_equal_pace_shows() -> None:
    inside, narrower = 0, 0
    for seed in range(60):
        found = swept(np.random.default_rng(seed), 8)
        [each] = at_equal_pace(found, [METRIC], ["FULL"])
        logs = found.sample(found.places()[0], "FULL", METRIC)
        inside += each.low <= 0.8 <= each.high
        narrower += math.log(each.high / each.low) < 2 * 2.36 * float(logs.std(ddof=1)) / math.sqrt(8)
        assert each.plain == pytest.approx(math.exp(logs.mean()))
        assert each.explained > 0.9
    assert inside >= 52  # 95 % of 60, less three standard errors
    assert narrower >= 58


def test_a_cell_s_own_pace_comes_before_its_start_s() -> None:
    rng = np.random.default_rng(1)
    assert pace_us(swept(rng, FEWEST)).between(6.6, 11.1).all()
    half = swept(rng, FEWEST, own=False)  # one end alone is no mean over the cell
    assert set(pace_us(half)) == {8.0}
    assert at_equal_pace(half, [METRIC], ["FULL"]) == []  # equal for all: nothing to regress on


def test_fewer_blocks_than_a_line_needs_give_nothing(tmp_path: Path) -> None:
    assert at_equal_pace(swept(np.random.default_rng(1), FEWEST - 1), [METRIC], ["FULL"]) == []
    assert host_pace_table(tmp_path) == f"No contrast has {FEWEST} blocks yet."
