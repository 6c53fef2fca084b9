"""Measured steps (heavy probe) and launches of one results folder in, a Calibration out.

Nothing is held out here: the errors kept are those on the fitted rows.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd

from artifact.analysis.step_fit import MIN_ROWS, Array, fit_gpu, fit_launch, fit_loop, gpu_rows, launch_design, square
from artifact.errors import InputError
from artifact.records import LaunchFacts
from artifact.schema import Evidence, HardwareConfig, Mode
from artifact.simulator.cost import (
    CALIBRATIONS,
    Calibration,
    LoopCost,
    Source,
    StepTable,
    TableName,
    calibration_file,
    table_name,
)

_COMPOSITION = ("runtime_mode", "num_tokens", "padded_tokens", "num_reqs", "num_decode", "prefill_tokens",
                "context_tokens", "launch_ms")  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Kind:
    """Rows of one kind of step and what was fitted on them; ``host_ms`` and ``gpu_ms`` without loop and tail."""

    rows: pd.DataFrame
    launch: Array
    knots: Array
    base_ms: Array
    context_ms: float
    square_ms: float
    gpu_source: str

    def host_ms(self, rows: pd.DataFrame) -> Array:
        return np.asarray(launch_design(rows) @ self.launch)

    def gpu_ms(self, rows: pd.DataFrame) -> Array:
        tokens = rows["padded_tokens"].to_numpy(float)
        base = np.interp(tokens, self.knots, self.base_ms)
        context = rows["context_tokens"].to_numpy(float)
        return np.asarray(base + self.context_ms * context + self.square_ms * square(rows))


def fit(
    steps: pd.DataFrame, launches: pd.DataFrame, requests: pd.DataFrame, hardware: HardwareConfig, model: str
) -> Calibration:
    """Fit a calibration of ``model`` on ``hardware``.

    ``steps`` has STEP_COLUMNS, cell_id, requested_mode, resolved_mode and realised_mode; ``launches`` and
    ``requests`` have the columns of their Parquet files. All rows are of one model and one backend.
    Raises InputError where no step carries the heavy probe's columns, or too few are alike.
    """
    if missing := [name for name in (*_COMPOSITION, "wall_ms") if name not in steps or steps[name].isna().all()]:
        raise InputError(
            f"steps.parquet: {', '.join(missing)} null in all of {len(steps)} steps; the times at which outputs "
            "arrive cannot part host from GPU: measure with engine.heavy_probe=true"
        )
    rows = steps.dropna(subset=list(_COMPOSITION))
    rows = rows[rows["launch_ms"] > 0]
    rows = rows.assign(table=[_table(*modes) for modes in zip(*(rows[name] for name in _MODES), strict=True)])
    kinds = _kinds(rows)
    loop = _loop(kinds)
    tables = {name: _step_table(kind, loop) for name, kind in kinds.items()}
    measured = launches[launches["status"] == "ok"]
    facts = {Mode(str(mode)): _median_facts(group) for mode, group in measured.groupby("requested_mode", observed=True)}
    return Calibration(
        gpu=hardware.gpu,
        gpu_name=_agreed(measured["gpu_name"]) or hardware.full_name,
        model=model,
        backend=str(_agreed(measured["backend"])),
        vllm_version=_provenance(measured, ("vllm",)),
        evidence=Evidence(str(_agreed(measured["evidence"]))),
        source=Source(
            study=str(_agreed(measured["study"])),
            launches=tuple(sorted(measured["launch_id"].astype(str))),
            hosts=tuple(sorted(measured["host_id"].astype(str).unique())),
            driver=_provenance(measured, ("driver",)),
            cpu=_provenance(measured, ("cpu",)),
            date=_provenance(measured, ("started",)),
        ),
        gpu_memory_utilization=_number(_provenance(measured, ("gpu_memory_utilization",))),
        eager_launch_us=_median(measured["eager_launch_us"]),
        graph_launch_us=_median(measured["graph_launch_us"]),
        frontend_ms=_frontend_ms(rows, requests, kinds, loop),
        loop=loop,
        tables=tables,
        launches=facts,
    )


_MODES = ("requested_mode", "resolved_mode", "realised_mode", "runtime_mode")


def _table(requested: Any, resolved: Any, realised: Any, runtime: Any) -> TableName:
    mode = Mode.EAGER if requested == Mode.EAGER else Mode(str(resolved))
    return table_name(mode, str(runtime), hollow=str(realised).endswith(":hollow"))


def _kinds(rows: pd.DataFrame) -> dict[TableName, _Kind]:
    periods = rows[rows["wall_ms"] > 0]
    groups = {name: periods[periods["table"] == name] for name in get_args(TableName)}
    groups = {name: group for name, group in groups.items() if len(group) >= MIN_ROWS}
    if not groups:
        raise InputError(f"steps.parquet: no kind of step has {MIN_ROWS} rows with wall_ms: measure more steps")
    whole = next((groups[name] for name in ("FULL", "FULL_DECODE") if name in groups), None)
    full = None if whole is None else whole.assign(span_ms=whole["gpu_ms"]).dropna(subset=["span_ms"])
    kinds = {}
    for name, group in groups.items():
        launch = fit_launch(group)
        used, source = gpu_rows(name, group, launch, full)
        kinds[name] = _Kind(group, launch, *fit_gpu(used), source)
    return kinds


def _loop(kinds: dict[TableName, _Kind]) -> LoopCost:
    """Fit what all kinds share on the medians of steps alike (kind, tokens, with or without prefill)."""
    columns: list[Array] = []
    for kind in kinds.values():
        rows = kind.rows
        frame = pd.DataFrame(
            {
                "host": kind.host_ms(rows),
                "gpu": kind.gpu_ms(rows),
                "requests": rows["num_reqs"].to_numpy(float),
                "wall": rows["wall_ms"].to_numpy(float),
                "bin": np.round(np.log2(rows["padded_tokens"].to_numpy(float)) * 2),
                "prefill": rows["prefill_tokens"].to_numpy(float) > 0,
            }
        )
        columns.append(frame.groupby(["bin", "prefill"]).median().to_numpy(float))
    host, gpu, requests, wall = np.concatenate(columns).T
    return fit_loop(host, gpu, requests, wall)


def _step_table(kind: _Kind, loop: LoopCost) -> StepTable:
    rows = kind.rows
    requests = rows["num_reqs"].to_numpy(float)
    host = kind.host_ms(rows) + loop.loop_fixed_ms + loop.loop_per_request_ms * requests
    gpu = kind.gpu_ms(rows) + loop.tail_fixed_ms + loop.tail_per_request_ms * requests
    wall = rows["wall_ms"].to_numpy(float)
    predicted = np.maximum(host, gpu)
    error = np.abs(predicted / wall - 1)
    low, high = np.quantile(np.log(wall / predicted), [0.05, 0.95])
    return StepTable(
        knots_tokens=tuple(int(knot) for knot in kind.knots),
        base_ms=tuple(float(value) for value in kind.base_ms),
        context_ms_per_token=kind.context_ms,
        square_ms_per_token2=kind.square_ms,
        launch_fixed_ms=float(kind.launch[0]),
        launch_per_request_ms=float(kind.launch[1]),
        launch_per_prefill_ms=float(kind.launch[2]),
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
            own = sent[(sent["sent_s"] > before_s.iloc[position]) & (sent["sent_s"] < end_s)]
            if kind is None or len(own) != 1:
                continue
            host, gpu = float(kind.host_ms(step)[0]), float(kind.gpu_ms(step)[0])
            busy = host + gpu if step["runtime_mode"].iloc[0] == "FULL" else max(host, gpu)
            busy = max(busy + loop.tail_fixed_ms + loop.tail_per_request_ms, issued_ms.iloc[position])
            ttft_ms = (float(own["first_token_s"].iloc[0]) - float(own["sent_s"].iloc[0])) * 1e3
            lateness.append(ttft_ms - busy - loop.loop_fixed_ms - loop.loop_per_request_ms)
    return max(float(np.median(lateness)), 0.0) if len(lateness) >= 3 else 0.0


def _median(column: "pd.Series[Any]") -> float | None:
    value = float(pd.to_numeric(column, errors="coerce").median()) if column.notna().any() else np.nan
    return None if np.isnan(value) else value


def _agreed(column: "pd.Series[Any]") -> Any:
    """Return the commonest value of a column, None where all are null."""
    counts = column.dropna().mode()
    return None if counts.empty else counts.iloc[0]


def _median_facts(launches: pd.DataFrame) -> LaunchFacts:
    """Return medians of the numbers and the commonest of the rest, of launches with the commonest cache state."""
    state = _agreed(launches["compile_cache"])
    alike = launches if state is None else launches[launches["compile_cache"] == state]
    values: dict[str, Any] = {}
    for name, field in LaunchFacts.model_fields.items():
        if name not in alike or alike[name].isna().all() or name in ("gpu_uuid", "gpu_name"):
            continue
        if field.annotation in (float | None, int | None):
            median = _median(alike[name])
            values[name] = round(median) if median is not None and field.annotation == int | None else median
        else:
            values[name] = _agreed(alike[name])
    return LaunchFacts.model_validate(values)


def _provenance(launches: pd.DataFrame, names: tuple[str, ...]) -> str | None:
    """Return the first value under one of ``names`` anywhere in the launches' provenance."""

    def found(node: Any) -> Any:
        if isinstance(node, dict):
            for name in names:
                if isinstance(node.get(name), str | int | float):
                    return node[name]
            return next((value for value in map(found, node.values()) if value is not None), None)
        return None

    values = (found(json.loads(text)) for text in launches["provenance"].dropna())
    return next((str(value) for value in values if value is not None), None)


def _number(text: str | None) -> float | None:
    return None if text is None else float(text)


def fit_folder(folder: Path, model: str, hardware: HardwareConfig, backend: str = "FLASH_ATTN") -> Calibration:
    """Fit on the measured, ok cells of ``folder`` that are of ``model``, ``backend`` and the GPU.

    Raises InputError, naming the file, where one is missing or has no such rows.
    """
    frames = {}
    for name in ("cells", "launches", "steps", "requests"):
        file = folder / f"{name}.parquet"
        if not file.is_file():
            raise InputError(f"{file}: no such file; run a study with engine.heavy_probe=true first")
        frames[name] = pd.read_parquet(file)
    cells, launches = frames["cells"], frames["launches"]
    cells = cells[(cells["status"] == "ok") & (cells["model"] == model) & (cells["backend"] == backend)]
    launches = launches[launches["launch_id"].isin(cells["launch_id"])]
    names = launches["gpu_name"].dropna().unique()
    if len(cells) == 0:
        raise InputError(f"{folder}/cells.parquet: no ok cell of model {model} with backend {backend}")
    if other := sorted(set(names) - {hardware.full_name}):
        raise InputError(f"{folder}/launches.parquet: measured on {', '.join(other)}, not on {hardware.full_name}")
    modes = cells[["cell_id", "requested_mode", "resolved_mode", "realised_mode"]]
    steps = frames["steps"].merge(modes, on="cell_id")
    requests = frames["requests"][frames["requests"]["cell_id"].isin(cells["cell_id"])]
    return fit(steps, launches, requests, hardware, model)


def save(calibration: Calibration, folder: Path = CALIBRATIONS) -> Path:
    """Write ``<gpu>__<model>.json`` into ``folder`` and return its path."""
    file = folder / calibration_file(calibration.gpu, calibration.model)
    partial = file.with_suffix(".partial")
    partial.write_text(calibration.model_dump_json(indent=1) + "\n")
    partial.replace(file)
    return file
