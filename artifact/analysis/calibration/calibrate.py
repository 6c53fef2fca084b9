"""Measured steps (heavy probe) and launches of one results folder in, a Calibration out.

Nothing is held out here: the errors kept are those on the fitted rows.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd

from artifact.analysis.calibration.host_fit import fit_host, left_ms, loop_design, typical_pace, unprobed_windows
from artifact.analysis.calibration.launch_medians import agreed, median, median_facts, provenance
from artifact.analysis.calibration.step_fit import (
    MIN_ROWS,
    Array,
    fit_gpu,
    fit_tail,
    gpu_design,
    gpu_rows,
    launch_design,
    with_tables,
)
from artifact.errors import InputError
from artifact.metrics.memory import believed
from artifact.schema import Evidence, HardwareConfig, Mode, ModelConfig
from artifact.simulator.cost import (
    CALIBRATIONS,
    Calibration,
    LoopCost,
    Source,
    StepTable,
    TableName,
    calibration_file,
)
from artifact.study.store import read_cells, read_launches, read_requests, read_steps

_COMPOSITION = ("runtime_mode", "num_tokens", "padded_tokens", "num_reqs", "num_decode", "prefill_tokens",
                "context_tokens", "launch_ms")  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Kind:
    """Rows of one kind of step and what was fitted on them; ``host_ms`` and ``gpu_ms`` without loop and tail.

    ``host_ms`` is at the pace that the host had in each row.
    """

    rows: pd.DataFrame
    launch: Array
    knots: Array
    base_ms: Array
    slopes_ms: Array
    gpu_source: str
    left_ms: Array  # (n,): see ``host_fit.left_ms``

    def host_ms(self, rows: pd.DataFrame) -> Array:
        return np.asarray(launch_design(rows) @ self.launch * rows["pace"].to_numpy(float))

    def turn_ms(self, loop_ms: Array) -> Array:
        """Return launch and loop, (2,) as ``LoopCost`` has it, of each of the rows."""
        loops = loop_design(self.rows["num_reqs"].to_numpy(float)) @ loop_ms
        return np.asarray(self.host_ms(self.rows) + loops * self.rows["pace"].to_numpy(float))

    def gpu_ms(self, rows: pd.DataFrame) -> Array:
        tokens = rows["padded_tokens"].to_numpy(float)
        base = np.interp(tokens, self.knots, self.base_ms)
        return np.asarray(base + gpu_design(rows) @ self.slopes_ms)


def fit(
    steps: pd.DataFrame, launches: pd.DataFrame, requests: pd.DataFrame, hardware: HardwareConfig, model: ModelConfig
) -> Calibration:
    """Fit a calibration of ``model`` on ``hardware``.

    ``steps`` has STEP_COLUMNS, cell_id, launch_id, requested_mode, resolved_mode and realised_mode; ``launches`` and
    ``requests`` have the columns of their Parquet files. All rows are of one model and one backend; where launches are
    of several studies, starts are those of the first.
    Raises InputError where no step carries the heavy probe's columns, or too few are alike.
    """
    if missing := [name for name in (*_COMPOSITION, "wall_ms") if name not in steps or steps[name].isna().all()]:
        raise InputError(
            f"steps.parquet: {', '.join(missing)} null in all of {len(steps)} steps; the times at which outputs "
            "arrive cannot part host from GPU: measure with engine.heavy_probe=true"
        )
    steps = with_tables(steps)
    rows = steps.dropna(subset=list(_COMPOSITION))
    rows = rows[rows["launch_ms"] > 0].sort_values(["cell_id", "step"], ignore_index=True)
    has_period = rows["wall_ms"] > 0
    rows = rows[has_period.groupby(rows["table"]).transform("sum") >= MIN_ROWS]
    if len(rows) == 0:
        raise InputError(f"steps.parquet: no kind of step has {MIN_ROWS} rows with wall_ms: measure more steps")
    host = fit_host(rows)
    rows = rows.assign(pace=host.pace)
    # Attention cannot read the cache faster than the memory gives it.
    least_context_ms = model.kv_bytes_per_token / hardware.bandwidth_bytes_per_s * 1e3
    kinds = _kinds(rows[rows["wall_ms"] > 0], host.launch, least_context_ms)
    gpu_ms = np.zeros(len(rows))
    for name, kind in kinds.items():
        own = (rows["table"] == name).to_numpy()
        gpu_ms[own] = kind.gpu_ms(rows[own])
    left = pd.Series(left_ms(rows, gpu_ms), index=rows.index)
    kinds = {name: replace(kind, left_ms=np.asarray(left[kind.rows.index], float)) for name, kind in kinds.items()}
    loop = _loop(kinds, host.loop)
    # How the pace wanders is read without the probe where that was measured: probing is work for the host too.
    tables = {name: _step_table(kind, loop) for name, kind in kinds.items()}
    unprobed = unprobed_windows(steps[~steps["cell_id"].isin(rows["cell_id"])], tables, loop)
    host_pace, slow = typical_pace(unprobed if len(unprobed) else host.windows)
    for name, table in tables.items():
        # Where every step waits for the GPU none shows it: replays, which suffer least of a slow host.
        tables[name] = table.model_copy(update={"slow_pace": slow.get(name, min(slow.values()))})
    measured = launches[launches["status"] == "ok"]
    # Starts of one study alone: what is captured, and what that takes, goes with the server's settings.
    first = measured[measured["study"] == measured["study"].iloc[0]]
    facts = {Mode(str(mode)): median_facts(group) for mode, group in first.groupby("requested_mode", observed=True)}
    share = provenance(measured, ("gpu_memory_utilization",))
    fitted = Calibration(
        gpu=hardware.gpu,
        gpu_name=agreed(measured["gpu_name"]) or hardware.full_name,
        model=model.name,
        backend=str(agreed(measured["backend"])),
        vllm_version=provenance(measured, ("vllm",)),
        evidence=Evidence(str(agreed(measured["evidence"]))),
        source=Source(
            study=", ".join(measured["study"].astype(str).unique()),
            launches=tuple(sorted(measured["launch_id"].astype(str))),
            hosts=tuple(sorted(measured["host_id"].astype(str).unique())),
            driver=provenance(measured, ("driver",)),
            cpu=provenance(measured, ("cpu",)),
            date=provenance(measured, ("started",)),
        ),
        gpu_memory_utilization=None if share is None else float(share),
        eager_launch_us=median(measured["eager_launch_us"]),
        graph_launch_us=median(measured["graph_launch_us"]),
        frontend_ms=_frontend_ms(rows, requests, kinds, loop),
        frontend_per_request_ms=_spacing_ms(requests),
        host_pace=host_pace,
        loop=loop,
        tables=tables,
        launches=facts,
    )
    return Calibration.model_validate(_rounded(fitted.model_dump()))


def _rounded(value: Any) -> Any:
    """Return floats of a dump with 5 significant digits: further ones are the machine's, not the measurement's."""
    if isinstance(value, float):
        return float(f"{value:.5g}") if abs(value) > 1e-9 else 0.0
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return tuple(_rounded(each) for each in value) if isinstance(value, tuple) else value


def _kinds(periods: pd.DataFrame, costs: dict[TableName, Array], least_context_ms: float) -> dict[TableName, _Kind]:
    groups = {name: periods[periods["table"] == name] for name in get_args(TableName) if name in costs}
    whole = next((groups[name] for name in ("FULL", "FULL_DECODE") if name in groups), None)
    full = None if whole is None or whole["gpu_ms"].isna().all() else whole.assign(span_ms=whole["gpu_ms"])
    full = None if full is None else full.dropna(subset=["span_ms"])
    used = {name: gpu_rows(name, group, full) for name, group in groups.items()}
    graphs = [name for name in ("FULL", "FULL_DECODE") if name in used]
    gpu: dict[TableName, tuple[Array, Array, Array]] = {}
    for alike in (graphs, *([name] for name in used if name not in graphs)):
        parts = [used[name][0] for name in alike]
        gpu |= zip(alike, fit_gpu(parts, least_context_ms), strict=True) if alike else {}
    return {
        name: _Kind(group, costs[name], *gpu[name], used[name][1], np.zeros(len(group)))
        for name, group in groups.items()
    }


def _loop(kinds: dict[TableName, _Kind], loop_ms: Array) -> LoopCost:
    """Fit the tail, which all kinds share, with the loop as given."""
    columns: list[Array] = []
    for kind in kinds.values():
        requests, wall = kind.rows["num_reqs"].to_numpy(float), kind.rows["wall_ms"].to_numpy(float)
        columns.append(np.array([kind.turn_ms(loop_ms), kind.left_ms, requests, wall]))
    tail = fit_tail(*np.concatenate(columns, axis=1))
    return LoopCost(
        loop_fixed_ms=float(loop_ms[0]),
        loop_per_request_ms=float(loop_ms[1]),
        tail_fixed_ms=round(float(tail[0]), 4),  # a search's last digits are the machine's
        tail_per_request_ms=round(float(tail[1]), 4),
    )


def _step_table(kind: _Kind, loop: LoopCost) -> StepTable:
    """Return the table at a host that is never slow."""
    rows = kind.rows
    requests, wall = rows["num_reqs"].to_numpy(float), rows["wall_ms"].to_numpy(float)
    host = kind.turn_ms(np.array([loop.loop_fixed_ms, loop.loop_per_request_ms]))
    gpu = kind.left_ms + loop.tail_fixed_ms + loop.tail_per_request_ms * requests
    predicted = np.maximum(host, gpu)
    error = np.abs(predicted / wall - 1)
    by_host = host >= gpu if (host >= gpu).sum() >= MIN_ROWS else np.ones(len(rows), bool)
    low, high = np.quantile(np.log(wall / predicted)[by_host], [0.05, 0.95])
    return StepTable(
        knots_tokens=tuple(int(knot) for knot in kind.knots),
        base_ms=tuple(float(value) for value in kind.base_ms),
        gpu_per_request_ms=float(kind.slopes_ms[0]),
        context_ms_per_token=float(kind.slopes_ms[1]),
        square_ms_per_token2=float(kind.slopes_ms[2]),
        launch_fixed_ms=float(kind.launch[0]),
        launch_per_request_ms=float(kind.launch[1]),
        launch_prefill_ms=float(kind.launch[2]),
        slow_pace=1.0,
        noise_sigma=float(high - low) / (2 * 1.645),  # between the 5th and the 95th percentile of a normal
        gpu_source=kind.gpu_source,
        max_requests=int(requests.max()),
        max_context_tokens=int(rows["context_tokens"].max()),
        rows=len(rows),
        error_p50=float(np.quantile(error, 0.5)),
        error_p90=float(np.quantile(error, 0.9)),
    )


def _frontend_ms(rows: pd.DataFrame, requests: pd.DataFrame, kinds: dict[TableName, _Kind], loop: LoopCost) -> float:
    """Return the median of TTFT less the step's own time over requests that found the engine idle; 0 below 3 of them.

    Such a request is the only one sent between the last outputs before an idle gap and those of its own step.
    """
    lateness: list[float] = []
    for cell, steps in rows.sort_values("step").groupby("cell_id"):
        sent = requests[requests["cell_id"] == cell]
        idle_before = steps["wall_ms"].shift(1).isna() & (steps["num_reqs"] == 1) & (steps["context_tokens"] == 0)
        before_s = steps["t_s"].shift(1).fillna(-np.inf)
        # With asynchronous scheduling the next step is issued before this one's outputs are read.
        issued_ms = (steps["wall_ms"] + steps["launch_ms"].shift(-1)).fillna(0.0)
        for position in np.flatnonzero(idle_before.to_numpy()):
            step = steps.iloc[[position]]
            kind = kinds.get(step["table"].iloc[0])
            end_s = float(step["t_s"].iloc[0])
            # Not before the last outputs: a closed group sends at that very moment.
            own = sent[(sent["sent_s"] > before_s.iloc[position] - 1e-6) & (sent["sent_s"] < end_s)]
            if kind is None or len(own) != 1:
                continue
            host, gpu = float(kind.host_ms(step)[0]), float(kind.gpu_ms(step)[0])
            busy = host + gpu if step["runtime_mode"].iloc[0] == "FULL" else max(host, gpu)
            busy = max(busy + loop.tail_fixed_ms + loop.tail_per_request_ms, issued_ms.iloc[position])
            ttft_ms = (float(own["first_token_s"].iloc[0]) - float(own["sent_s"].iloc[0])) * 1e3
            loop_ms = (loop.loop_fixed_ms + loop.loop_per_request_ms) * float(step["pace"].iloc[0])
            lateness.append(ttft_ms - busy - loop_ms)
    return max(float(np.median(lateness)), 0.0) if len(lateness) >= 3 else 0.0


def _spacing_ms(requests: pd.DataFrame) -> float:
    """Return the median time between requests sent, over bursts (one intended moment) of at least 8; 0 without any."""
    bursts = requests.dropna(subset=["sent_s"]).groupby(["cell_id", "intended_s"])["sent_s"].agg(["min", "max", "size"])
    bursts = bursts[bursts["size"] >= 8]
    return float(((bursts["max"] - bursts["min"]) / (bursts["size"] - 1)).median() * 1e3) if len(bursts) else 0.0


def fit_folder(
    folder: Path, model: ModelConfig, hardware: HardwareConfig, *more: Path, backend: str = "FLASH_ATTN"
) -> Calibration:
    """Fit on the measured, ok cells of ``folder`` and ``more`` folders that are of ``model``, ``backend`` and the GPU.

    Where ``folder`` holds the model, the starts are its alone; a folder of ``more`` without the model adds nothing.
    Raises InputError, naming the file, where one is missing or none has such rows.
    """
    found = [_read(each, model.name, hardware, backend) for each in (folder, *more)]
    held = [each for each in found if each is not None]
    if not held:
        files = ", ".join(f"{each}/cells.parquet" for each in (folder, *more))
        raise InputError(f"{files}: no ok cell of model {model.name} with backend {backend}")
    steps, launches, requests = (pd.concat(parts, ignore_index=True) for parts in zip(*held, strict=True))
    return fit(steps, launches, requests, hardware, model)


def _read(
    folder: Path, model: str, hardware: HardwareConfig, backend: str
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame] | None:
    """Return steps with their launch's modes, launches and requests; None without an ok cell of the model."""
    for name in ("cells", "launches", "steps", "requests"):
        if not (folder / f"{name}.parquet").is_file():
            raise InputError(f"{folder / name}.parquet: no such file; run a study with engine.heavy_probe=true first")
    cells, launches = read_cells(folder), believed(read_launches(folder))
    cells = cells[(cells["status"] == "ok") & (cells["model"] == model) & (cells["backend"] == backend)]
    if cells.empty:
        return None
    launches = launches[launches["launch_id"].isin(cells["launch_id"])]
    if other := sorted(set(launches["gpu_name"].dropna()) - {hardware.full_name}):
        raise InputError(f"{folder}/launches.parquet: measured on {', '.join(other)}, not on {hardware.full_name}")
    modes = cells[["cell_id", "launch_id", "requested_mode", "resolved_mode", "realised_mode"]]
    return read_steps(folder).merge(modes, on="cell_id"), launches, read_requests(folder, cells["cell_id"])


def save(calibration: Calibration, folder: Path = CALIBRATIONS) -> Path:
    """Write ``<gpu>__<model>.json`` into ``folder`` and return its path."""
    file = folder / calibration_file(calibration.gpu, calibration.model)
    partial = file.with_suffix(".partial")
    partial.write_text(calibration.model_dump_json(indent=1) + "\n")
    partial.replace(file)
    return file
