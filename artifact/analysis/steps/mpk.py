"""A folder of studies in, the Markdown table of the modes on MPK's protocol grid beside what MPK published, out."""

from pathlib import Path
from typing import Any

from artifact.analysis import every_study
from artifact.analysis.markdown import between, markdown, records, said, shown, span
from artifact.analysis.steps.floor import copies_below
from artifact.analysis.steps.table import step_table
from artifact.study.store import read_steps

# MPK, OSDI 2026: milliseconds a token of Qwen3-8B at batch 1 on one A100, as published, not run here.
MODEL = "qwen3-8b"
PUBLISHED = {"14.5 without MPK": 14.5, "12.5 with MPK": 12.5, "bound, about 10": 10.0}
_NOT_YET = "Not measured yet: `artifact run study=step_latency study.only=[mpk]` makes its rows."


def mpk_table(root: Path) -> str:
    """Return the decode steps of study step_latency's mpk grid below ``root``, in ms, and what they are made of."""
    folder = root / "step_latency"
    found = every_study.read([folder])
    cells = found.cells[(found.cells["status"] == "ok") & (found.cells["workload"] == "mpk_grid")]
    if cells.empty:
        return _NOT_YET
    launches = found.launches[found.launches["launch_id"].isin(cells["launch_id"])]
    table = step_table(cells, read_steps(folder, cells["cell_id"]), launches, copies_below(root))
    table = table.dropna(subset=["wall_ms"])
    batches = sorted(set(table["batch"]))
    rows = []
    for (model, tile), of_tile in table.groupby(["model", "tile"]):
        for arm, own in of_tile.groupby("arm"):
            steps = records(own.set_index("batch").reindex(batches))
            rows.append([f"{model}, {tile}", str(arm), span(own["n_launches"], ".0f"), *map(_step, steps)])
        floor = of_tile.groupby("batch")["floor_ms"].median().reindex(batches)
        rows.append([f"{model}, {tile}", "memory's floor", "-", *(shown(value, ".2f") for value in floor)])
    rows.append([f"{MODEL}, A100", "MPK's paper", "-", *("; ".join(PUBLISHED) if b == 1 else "-" for b in batches)])
    bandwidth = "; ".join(table["floor_bandwidth"].dropna().unique()) or "a bandwidth that is not known"
    words = (
        "Milliseconds a token, prompts of 64 and answers of 1,024 tokens, by requests in the batch: geometric mean "
        "over n launches of the median decode step, with its 95 % t-interval (one launch has none), heavy probe off. "
        f"Floor: bytes of weights and KV cache over {bandwidth}. MPK: as published (OSDI 2026), not run here, at batch "
        "1 and on another GPU, so that no ratio to it is taken."
    )
    header = ["model, tile", "mode", "n", *(f"batch {batch}" for batch in batches)]
    return f"{markdown(header, rows)}\n\n{said(launches, words)}"


def _step(row: Any) -> str:
    """Return the step's time, and its interval in brackets where it has one."""
    ends = between(row.wall_low_ms, row.wall_high_ms, ".2f")
    return shown(row.wall_ms, ".2f") + ("" if ends == "-" else f" ({ends})")
