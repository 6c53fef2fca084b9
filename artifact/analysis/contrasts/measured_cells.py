"""Shipped measurements and a configuration in; the cells that are close to it, and trials where they suffice, out.

Close is: the same model, backend, server and workload, at a rate within 10 %. What suffices is what any contrast of
this study needs: every mode in at least 8 blocks, 5 for a model of 10 GB of weights or more.
"""

from pathlib import Path
from typing import NamedTuple

import pandas as pd

from artifact.analysis.correctness import screened
from artifact.analysis.recommend.objectives import Trial
from artifact.config import groups, load
from artifact.errors import InputError
from artifact.metrics.memory import believed
from artifact.schema import Config, Evidence, Mode, ModelConfig
from artifact.study.identity import server_hash
from artifact.study.store import read_cells, read_launches

_RATE_TOLERANCE = 0.1
_BLOCKS, _BLOCKS_LARGE = 8, 5
_LARGE_BYTES = 10**10


class Measured(NamedTuple):
    """Close cells (records.CellRow and their launch's graph_bytes, capture_s, kv_tokens), and the trials they make."""

    cells: pd.DataFrame
    blocks: tuple[str, ...]  # in which every mode was measured
    needed: int
    trials: tuple[Trial, ...]  # empty where the blocks do not suffice


def find(config: Config, modes: tuple[Mode, ...], root: Path | None) -> Measured:
    """Return what the study folders below ``root`` hold of ``modes``; nothing without a root."""
    needed = needed_blocks(config.model)
    cells = pd.DataFrame() if root is None or not _is_preset(config) else _close(config, modes, root)
    if cells.empty:
        return Measured(cells, (), needed, ())
    by_block = cells.groupby("block")["requested_mode"].nunique()
    blocks = tuple(sorted(str(block) for block in by_block.index[by_block == len(modes)]))
    if len(blocks) < needed:
        return Measured(cells, blocks, needed, ())
    return Measured(cells, blocks, needed, tuple(_trial(cells, mode, blocks) for mode in modes))


def needed_blocks(model: ModelConfig) -> int:
    """Return in how many blocks a contrast is to be measured: below that it is exploratory."""
    return _BLOCKS_LARGE if model.weight_bytes >= _LARGE_BYTES else _BLOCKS


def _is_preset(config: Config) -> bool:
    """Return whether the workload is the preset of its name but for the rate, the length and the SLO."""
    workload = config.workload
    if workload.name not in groups()["workload"] or workload.arrival.process == "trace":
        return False
    free = {"duration_s", "warmup_s", "cooldown_s", "slo_ttft_ms", "slo_tpot_ms"}
    ours, preset = (each.model_dump(exclude=free) for each in (workload, load([f"workload={workload.name}"]).workload))
    for dump in (ours, preset):
        dump["arrival"]["rate_per_s"] = None
    return ours == preset


def _close(config: Config, modes: tuple[Mode, ...], root: Path) -> pd.DataFrame:
    found = []
    for folder in sorted(path.parent for path in root.glob("*/cells.parquet")):
        try:
            cells, launches = screened(read_cells(folder), root), believed(read_launches(folder))
        except InputError:
            continue  # a folder of another version is no evidence
        launches = launches[launches["gpu_name"] == config.hardware.full_name]
        of_launch = launches[["launch_id", "graph_bytes", "capture_s", "kv_tokens"]]
        cells = cells.merge(of_launch, on="launch_id", how="inner")
        rate = config.workload.arrival.rate_per_s
        near = (cells["offered_rate"] / rate - 1).abs() <= _RATE_TOLERANCE if rate else cells["offered_rate"].isna()
        found.append(
            cells[
                (cells["status"] == "ok")
                & (cells["flags"] == "")
                & (cells["evidence"] == Evidence.MEASURED.value)
                & (cells["model"] == config.model.name)
                & (cells["backend"] == config.backend.name)
                & (cells["server_hash"] == server_hash(config))
                & (cells["workload"] == config.workload.name)
                & cells["requested_mode"].isin([mode.value for mode in modes])
                & (cells["realised_mode"] == cells["requested_mode"])
                & ~cells["arm"].fillna("").str.contains("@")  # a mode's variants, its second launch too
                & near
            ]
        )
    found = [frame for frame in found if len(frame)]
    if not found:
        return pd.DataFrame()
    cells = pd.concat(found, ignore_index=True)
    # Blocks are numbered within a study, and pair within one machine alone.
    return cells.assign(block=cells["study"] + "/" + cells["block"] + " on " + cells["host_id"])


def _trial(cells: pd.DataFrame, mode: Mode, blocks: tuple[str, ...]) -> Trial:
    own = cells[cells["requested_mode"] == mode.value].drop_duplicates("block").set_index("block")
    # A cell of the store is null where there is no value; a trial says None.
    rows = [{str(key): None if pd.isna(value) else value for key, value in own.loc[block].items()} for block in blocks]
    return Trial(mode, tuple(rows), _median(own["graph_bytes"]), _median_s(own["capture_s"]))


def _median(column: "pd.Series[int]") -> int | None:
    value = column.dropna().median()
    return None if pd.isna(value) else round(float(value))


def _median_s(column: "pd.Series[float]") -> float | None:
    value = column.dropna().median()
    return None if pd.isna(value) else float(value)
