"""Study folders in, the rows that a figure shows and the line that says what they are out."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from artifact.errors import InputError
from artifact.study.store import read_cells, read_launches, read_steps


class NothingToDraw(InputError):
    """The rows are fine and hold nothing that the figure shows: its studies have not been run, or not that part."""


@dataclass(frozen=True, eq=False)
class Data:
    """The rows of one or more studies and the line that says what they are."""

    cells: pd.DataFrame
    launches: pd.DataFrame
    folders: tuple[Path, ...]
    label: str

    @cached_property
    def steps(self) -> pd.DataFrame:
        """The studies' steps, read when a figure asks for them: by far the largest of the files."""
        return pd.concat([read_steps(folder) for folder in self.folders], ignore_index=True)


def load(*folders: Path) -> Data:
    """Read those of the studies' folders that exist; one kind of evidence alone, measured where there is any.

    Raises NothingToDraw where none exists or no cell is finished.
    """
    found = [folder for folder in folders if (folder / "cells.parquet").exists()]
    if not found:
        raise NothingToDraw(f"{folders[0]}: no such study; artifact run study={folders[0].name} makes it")
    cells, launches = (
        pd.concat([read(folder) for folder in found], ignore_index=True) for read in (read_cells, read_launches)
    )
    cells = cells[cells["status"] == "ok"]
    if cells.empty:
        raise NothingToDraw(f"{found[0]}: no finished cell to draw")
    evidence = min(cells["evidence"])  # measured, before simulated
    cells = cells[cells["evidence"] == evidence]
    launches = launches[launches["launch_id"].isin(cells["launch_id"])]
    gpu = ", ".join(sorted(launches["gpu_name"].dropna().unique())) or "GPU unknown"
    models = ", ".join(sorted(cells["model"].unique()))
    return Data(cells, launches, tuple(found), f"{evidence}, {gpu}, {models}, vLLM 0.21.0")
