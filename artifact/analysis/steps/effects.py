"""Cells, steps and launches of step studies in; what compilation and each kind of graph saves a step out.

Contrasts are paired by block within a machine: the block is the unit of replication, and n is how many blocks there
are. Decode steps are those of the grids without the heavy probe. Mixed steps are those of ``mixed_steps`` with it, as
nothing else tells them from decode steps: there both sides of a contrast have the probe on.
"""

from typing import Any

import numpy as np
import pandas as pd

from artifact.analysis.steps.table import finished, grid_steps, interval, no_interval, per_launch, step_table
from artifact.metrics.memory import believed

GRAPH_ARMS = ("PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
MIXED = "mixed_steps"
BIN_EDGES = (0, 192, 384, 512)  # tokens of a mixed step; above the last, nothing is captured
_MIN_MIXED = 3  # steps of a bin in a launch
_GROUP = ["model", "tile"]
_EFFECT = [
    *("effect", "arm", "reference", "speedup", "low", "high", "n_blocks"),
    *("reference_ms", "saved_ms", "saved_low_ms", "saved_high_ms", "reason"),
]
INPUT_COPY_REASON = "no probe times the copy of inputs alone: it is part of launch_ms"


def compile_vs_graph(cells: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Return what compilation and graphs do to a decode step, apart: a row per model, tile, batch and contrast.

    ``effect`` compile sets NONE against EAGER; graphs sets each mode against NONE. ``speedup`` is the reference's time
    over the arm's: geometric mean over ``n_blocks`` blocks of the ratio of launch medians, with ``low`` and ``high``,
    its 95 % t-interval on logarithms (a host slows steps by a factor, not by milliseconds). ``reference_ms`` is the
    reference's geometric mean; ``saved_ms`` = reference_ms (1 - 1 / speedup), its ends those of the speedup: what is
    saved of a step of that length. ``reason``: why there is no interval, else null. Blocks that lack either side count
    for nothing.
    """
    rows = per_launch(grid_steps(cells, steps))
    light = rows[~rows["heavy"]].rename(columns={"batch": "size", "wall_ms": "step_ms"})
    return _contrasts(light).rename(columns={"size": "batch"})


def mixed_steps(cells: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Return a row per launch and bin of mixed steps: those that decode and prefill, right after a pure decode step.

    With asynchronous scheduling the host issues a step while the GPU works on the one before. From one launch to the
    next is what the host takes for a step, or waits for the GPU to end the one before; the events around the forward
    pass span what the GPU takes for it, with the gaps between its launches. The longer of the two is ``period_ms``; a
    decode step before keeps the wait short, and behind a larger step it would be that one's time.

    Columns: model, tile, arm, launch_id, pair, ``size`` (upper end of the bin in tokens, infinite above the largest
    captured size), n_steps, tokens (median), padding (padded over unpadded, less one, over all the bin's steps),
    runtime_mode (of most steps), period_ms (median), gpu_ms (median of the span where whole graphs replay, else null).
    """
    own = finished(cells, (MIXED,))[["cell_id", "launch_id", "model", "tile", "arm", "pair"]]
    own = steps.merge(own, on="cell_id").sort_values(["cell_id", "step"])
    after_decode = own.groupby("cell_id", sort=False)["prefill_tokens"].shift(1) == 0
    mixed = (own["prefill_tokens"] > 0) & (own["num_decode"] > 0) & own["wall_ms"].notna() & after_decode
    own = own[mixed.fillna(value=False).astype(bool)].astype({"num_tokens": "float64", "padded_tokens": "float64"})
    own["size"] = np.array([*BIN_EDGES[1:], np.inf])[np.searchsorted(BIN_EDGES[1:], own["num_tokens"])]
    own["period_ms"] = own[["wall_ms", "gpu_ms"]].max(axis=1)
    own["gpu_ms"] = own["gpu_ms"].where((own["runtime_mode"] == "FULL").fillna(value=False))
    grouped = own.groupby([*_GROUP, "arm", "launch_id", "pair", "size"])
    rows = grouped.agg(
        n_steps=("period_ms", "size"),
        tokens=("num_tokens", "median"),
        padding=("padded_tokens", "sum"),
        runtime_mode=("runtime_mode", lambda modes: next(iter(modes.mode()), None)),
        period_ms=("period_ms", "median"),
        gpu_ms=("gpu_ms", "median"),
    )
    rows["padding"] = rows["padding"] / grouped["num_tokens"].sum() - 1
    return rows[rows["n_steps"] >= _MIN_MIXED].reset_index()


def mixed_table(cells: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Return a row per model, tile, arm and bin of mixed steps, the heavy probe on.

    Columns: ``size`` (see ``mixed_steps``), n_launches, n_steps, tokens, padding, runtime_mode; ``period_ms`` and
    ``gpu_ms``, geometric means over launches of their medians, with ``_low_ms`` and ``_high_ms``; ``reason``, why there
    are no such ends, else null.
    """
    table = []
    for keys, group in mixed_steps(cells, steps).groupby([*_GROUP, "arm", "size"]):
        period, gpu = (interval(group[name]) for name in ("period_ms", "gpu_ms"))
        names = dict(zip([*_GROUP, "arm", "size"], keys, strict=True))
        numbers = {"n_launches": period.n, "n_steps": int(group["n_steps"].sum()), "tokens": group["tokens"].median()}
        periods = {"period_ms": period.mean, "period_low_ms": period.low, "period_high_ms": period.high}
        gpus = {"gpu_ms": gpu.mean, "gpu_low_ms": gpu.low, "gpu_high_ms": gpu.high}
        kind = {"padding": group["padding"].mean(), "runtime_mode": group["runtime_mode"].mode().iloc[0]}
        table.append({**names, **numbers, **kind, **periods, **gpus, "reason": no_interval(period.n, "launch")})
    ends = [f"{what}{end}_ms" for what in ("period", "gpu") for end in ("", "_low", "_high")]
    columns = [*_GROUP, "arm", "size", "n_launches", "n_steps", "tokens", "padding", "runtime_mode", *ends, "reason"]
    return pd.DataFrame(table, columns=columns)


def graph_benefit(cells: pd.DataFrame, steps: pd.DataFrame, launches: pd.DataFrame) -> pd.DataFrame:
    """Return what each captured size of each arm saves and takes: a row per model, tile, arm, kind of step and size.

    ``steps`` is decode (``size`` a batch of the grid) or mixed (``size`` the upper end of a bin). Columns: ``kind``,
    the runtime mode that replays; speedup, reference_ms and saved_ms against NONE with their intervals and n_blocks, as
    in ``compile_vs_graph``; ``verdict``: helps or hurts where the interval of the speedup leaves 1 out, else unclear
    (one block has no interval; of a hundred sizes without a difference, five would show one); padding, ``step_ms``
    (decode: wall_ms, mixed: period_ms) and gpu_ms, as in ``step_table`` and ``mixed_table``; ``graphs``, and
    ``bytes_per_graph`` (graph_bytes over captures, over the launch) and ``bytes_per_size`` (over its captured keys;
    null for an arm with two kinds of graph, whose bytes are known together), medians over launches;
    ``input_copy_ms``, null, and ``input_copy_reason``. Sizes at which an arm replays nothing have no row.
    """
    decode = compile_vs_graph(cells, steps).rename(columns={"batch": "size"}).assign(steps="decode")
    mixed = mixed_steps(cells, steps).rename(columns={"period_ms": "step_ms"})
    mixed = _contrasts(mixed).assign(steps="mixed")
    of_decode = step_table(cells, steps, launches).rename(columns={"batch": "size", "wall_ms": "step_ms"})
    of_mixed = mixed_table(cells, steps).rename(columns={"period_ms": "step_ms"})
    keys = [*_GROUP, "arm", "size", "steps"]
    wanted = [*keys, "runtime_mode", "padding", "step_ms", "gpu_ms"]
    both = (of_decode.assign(steps="decode"), of_mixed.assign(steps="mixed"))
    known = pd.concat([frame[wanted].astype({"size": "float64"}) for frame in both])
    rows = pd.concat([frame.astype({"size": "float64"}) for frame in (decode, mixed)])
    rows = rows[rows["effect"] == "graphs"].merge(known, on=keys, how="left")
    rows = rows[rows["runtime_mode"].isin(["FULL", "PIECEWISE"])].rename(columns={"runtime_mode": "kind"})
    rows = rows.merge(_memory(launches), on=[*_GROUP, "arm"], how="left")
    verdict = np.select([rows["low"] > 1, rows["high"] < 1], ["helps", "hurts"], "unclear")
    rows = rows.assign(verdict=verdict, input_copy_ms=np.nan, input_copy_reason=INPUT_COPY_REASON)
    return rows.drop(columns=["effect", "reference"]).sort_values([*_GROUP, "steps", "arm", "size"], ignore_index=True)


def _memory(launches: pd.DataFrame) -> pd.DataFrame:
    """Return captures and bytes per graph and per size, medians over an arm's launches that can be believed."""
    own = believed(launches)
    captures = own["captures"].astype("float64").where(own["captures"] > 0)
    graph_bytes = own["graph_bytes"].astype("float64")
    keys = own[["keys_piecewise", "keys_full"]].astype("float64")
    sizes = keys.sum(axis=1).where((keys > 0).sum(axis=1) == 1)
    own = own.assign(graphs=captures, bytes_per_graph=graph_bytes / captures, bytes_per_size=graph_bytes / sizes)
    columns = ["graphs", "bytes_per_graph", "bytes_per_size"]
    return own.groupby([*_GROUP, "arm"], as_index=False)[columns].median()


def _contrasts(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the contrasts at each model, tile and ``size`` of ``rows``: a launch's median ``step_ms`` each."""
    # A launch that was started again is no block of its own.
    logs = rows.assign(log=np.log(rows["step_ms"].astype(float))).pivot_table(
        index=[*_GROUP, "size", "pair"], columns="arm", values="log", aggfunc="mean"
    )
    pairs = [("compile", "NONE", "EAGER"), *(("graphs", arm, "NONE") for arm in GRAPH_ARMS)]
    found: list[dict[str, Any]] = []
    for keys, group in logs.groupby(level=[*_GROUP, "size"]):
        for effect, arm, reference in pairs:
            if arm not in group or reference not in group:
                continue
            both = np.exp(group[[reference, arm]].dropna().to_numpy(float))
            if not len(both):
                continue
            ratio, reference_ms = interval(both[:, 0] / both[:, 1]), interval(both[:, 0]).mean
            saved = [reference_ms * (1 - 1 / speedup) for speedup in ratio[:3]]
            values = (effect, arm, reference, *ratio, reference_ms, *saved, no_interval(ratio.n, "block"))
            found.append(dict(zip([*_GROUP, "size", *_EFFECT], (*keys, *values), strict=True)))
    return pd.DataFrame(found, columns=[*_GROUP, "size", *_EFFECT])
