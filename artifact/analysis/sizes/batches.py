"""Steps of an engine, simulated or measured, in; the batches that they are, each with its weight, out."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from artifact.errors import InputError
from artifact.schema import Config
from artifact.study.store import read_cells, read_steps

_CONTEXT_TOKENS = 256  # batches alike but for less than this are one, at their mean: 0.01 ms on the slowest table
_COLUMNS = ("tokens", "uniform", "requests", "prefills", "context_tokens", "square", "steps")


@dataclass(frozen=True, eq=False)
class Batches:
    """Distinct batches, ascending in tokens; all arrays have shape (n,), n >= 1."""

    tokens: npt.NDArray[np.int64]  # scheduled, before padding
    uniform: npt.NDArray[np.bool_]  # each request has the tokens of a decode step, and no more
    requests: npt.NDArray[np.int64]
    prefills: npt.NDArray[np.int64]  # requests with other numbers of tokens
    context_tokens: npt.NDArray[np.float64]  # in the KV cache before the step, over the batch
    square: npt.NDArray[np.float64]  # (prefill tokens)^2 / prefills
    steps: npt.NDArray[np.float64]  # how many steps were this batch

    @classmethod
    def of_steps(cls, steps: pd.DataFrame, query_len: int, most_tokens: int) -> Self:
        """Return the batches of ``steps`` (records.STEP_COLUMNS, heavy ones too, no speculation), one or more.

        With speculation a decoding request takes ``query_len`` tokens, in steps that are taken to be otherwise alike.
        """
        columns = ("num_tokens", "num_reqs", "num_decode", "prefill_tokens", "context_tokens")
        tokens, requests, decode, prefill, context = (steps[name].to_numpy(dtype=np.int64) for name in columns)
        prefills = requests - decode
        frame = pd.DataFrame(
            {
                "tokens": np.minimum(tokens + (query_len - 1) * decode, most_tokens),
                "uniform": prefills == 0,
                "requests": requests,
                "prefills": prefills,
                "context_tokens": context.astype(np.float64),
                "square": prefill.astype(np.float64) ** 2 / np.maximum(prefills, 1),
                "steps": 1.0,
            }
        )
        return cls._grouped(frame)

    @classmethod
    def merged(cls, parts: Sequence["Batches"]) -> Self:
        """Return the batches of all ``parts``, one or more."""
        frames = (pd.DataFrame({name: getattr(part, name) for name in _COLUMNS}) for part in parts)
        return cls._grouped(pd.concat(frames))

    @classmethod
    def _grouped(cls, frame: pd.DataFrame) -> Self:
        for name in ("context_tokens", "square"):
            frame[name] *= frame["steps"]
        near = (frame["context_tokens"] / frame["steps"] // _CONTEXT_TOKENS).rename("near")
        sums = ["context_tokens", "square", "steps"]
        rows = frame.groupby(["tokens", "uniform", "requests", "prefills", near])[sums].sum().reset_index()
        for name in ("context_tokens", "square"):
            rows[name] /= rows["steps"]
        return cls(*(rows[name].to_numpy() for name in _COLUMNS))


class Served(NamedTuple):
    """What serving a load gave."""

    batches: Batches
    step_ms: float | None  # mean of the steps that another one follows at once
    steps: int
    overload: bool


def recorded(config: Config, folder: Path, query_len: int) -> Served:
    """Return the batches of the cells in ``folder`` that served ``config.workload`` and model in ``config.mode``.

    Raises InputError where there are none, or none that the heavy probe recorded.
    """
    cells = read_cells(folder)
    close = cells[
        (cells["status"] == "ok")
        & (cells["model"] == config.model.name)
        & (cells["workload"] == config.workload.name)
        & (cells["requested_mode"] == config.mode.name.value)
    ]
    if close.empty:
        raise InputError(
            f"sizes.measured={folder}: no finished cell of {config.model.name}, workload={config.workload.name}, "
            f"mode={config.mode.name.value.lower()}; it holds "
            + ", ".join(sorted({f"{row.model} {row.workload} {row.requested_mode}" for row in cells.itertuples()}))
        )
    steps = read_steps(folder, list(close["cell_id"]))
    known = steps.dropna(subset=["num_reqs", "num_decode", "prefill_tokens", "context_tokens", "num_tokens"])
    if known.empty:
        raise InputError(
            f"sizes.measured={folder}: its steps do not say what was in a batch; record with engine.heavy_probe=true"
        )
    wall_ms = known["wall_ms"].mean()
    batches = Batches.of_steps(known, query_len, config.server.max_num_batched_tokens)
    return Served(batches, None if pd.isna(wall_ms) else float(wall_ms), len(known), False)
