"""results/STUDY in, paper_figures/data/STUDY out: the measured rows as the repository ships them, and where from.

    python paper_figures/ship.py RESULTS_FOLDER [--correct COLUMN WHERE VALUE WHY]

Rows are copied as they are but for two things: times become 32-bit floats (2 us at half a minute), and a correction
named on the command line is made and written down in provenance.json. Simulated rows are refused.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from artifact.study.store import read_cells, read_launches

DATA = Path(__file__).resolve().parent / "data"


def compact(source: Path, target: Path, *, narrow: bool) -> None:
    """Write ``source`` again, small; ``narrow`` turns doubles into 32-bit floats."""
    table = pq.read_table(source)
    doubles = [field.name for field in table.schema if pa.types.is_float64(field.type)]
    if narrow:
        fields = [field.with_type(pa.float32()) if field.name in doubles else field for field in table.schema]
        table = table.cast(pa.schema(fields))
    pq.write_table(
        table,
        target,
        compression="zstd",
        compression_level=19,
        use_dictionary=[name for name in table.column_names if name not in doubles],
        column_encoding=dict.fromkeys(doubles, "BYTE_STREAM_SPLIT"),
    )


def describe(cells: pd.DataFrame, launches: pd.DataFrame, commit: str | None) -> dict[str, Any]:
    """Return where the rows come from: the values that all launches agree on, lists of those that differ."""
    notes = [json.loads(text) for text in launches["provenance"]]
    started = sorted(note["started"] for note in notes)
    return {
        "evidence": sorted(cells["evidence"].unique()),
        "cells": cells["status"].value_counts().to_dict(),
        "launches": len(launches),
        "first_start": started[0],
        "last_start": started[-1],
        "commit": commit or sorted({str(note["git"]["commit"]) for note in notes}),
        "gpu": sorted({f"{note['gpu']['name']} {note['gpu']['uuid']}" for note in notes}),
        "driver": sorted({str(note["gpu"]["driver"]) for note in notes}),
        "host": sorted({f"{note['cpu']}, {note['cores']} cores, kernel {note['kernel']}" for note in notes}),
        "packages": notes[0]["packages"],
        "python": notes[0]["python"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--commit", help="of the code that measured, where the machine had no history")
    parser.add_argument("--correct", nargs=4, action="append", default=[], metavar=("COLUMN", "WHERE", "VALUE", "WHY"))
    options = parser.parse_args()
    cells, launches = read_cells(options.results), read_launches(options.results)
    if set(cells["evidence"]) != {"measured"}:
        sys.exit(f"{options.results}: holds simulated rows; only measured ones are shipped")
    target = DATA / str(cells["study"].iloc[0])
    target.mkdir(parents=True, exist_ok=True)
    for name in ("cells", "launches", "requests", "steps"):
        compact(options.results / f"{name}.parquet", target / f"{name}.parquet", narrow=name in ("requests", "steps"))
    note = describe(cells, launches, options.commit)
    for column, where, value, why in options.correct:
        table = pq.read_table(target / "launches.parquet")
        frame = table.to_pandas()
        rows = frame.query(where).index
        was = sorted(frame.loc[rows, column].unique())
        frame.loc[rows, column] = value
        pq.write_table(pa.Table.from_pandas(frame, schema=table.schema), target / "launches.parquet")
        compact(target / "launches.parquet", target / "launches.parquet", narrow=False)
        note.setdefault("corrections", []).append(
            {"column": column, "where": where, "was": was, "is": value, "rows": len(rows), "why": why}
        )
    (target / "provenance.json").write_text(json.dumps(note, indent=1) + "\n")
    print(*sorted(f"{file.stat().st_size:>9,}  {file}" for file in target.iterdir()), sep="\n")


if __name__ == "__main__":
    main()
