"""results/STUDY in, paper_figures/data/STUDY out: the measured rows as the repository ships them, and where from.

    python paper_figures/ship.py RESULTS_FOLDER [--commit SHA] [--remark TEXT] [--correct COLUMN WHERE VALUE WHY]
                                 [--without steps requests]

Rows join those that the study ships already: a row is never overwritten, and one id with two contents is refused.
They are copied as they are but for two things: times of requests and steps become 32-bit floats (2 us at half a
minute), as do scores, which vLLM computes so; and a correction named on the command line is made and written down in
provenance.json. Simulated rows are refused. ``--without`` leaves raw rows at home: all studies together have 6 MiB, a
load's cell takes 17 kB of steps and 7 kB of requests, and later blocks count by their cells.
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
_KEYS = {"cells": "cell_id", "launches": "launch_id", "requests": "cell_id", "steps": "cell_id", "scores": "cell_id"}


def joined(name: str, old: Path, new: pa.Table) -> pa.Table:
    """Return the shipped rows of ``name`` with those of ``new`` behind them that are not there yet."""
    if not old.exists():
        return new
    shipped, key = pq.read_table(old), _KEYS[name]
    known = set(shipped[key].to_pylist())
    if name in ("cells", "launches"):
        by_id = {row[key]: row for row in shipped.to_pylist()}
        clash = [
            row[key] for row in new.to_pylist() if row[key] in by_id and row["host_id"] != by_id[row[key]]["host_id"]
        ]
        if clash:
            sys.exit(
                f"{old}: ships {clash[0]} already, measured on another machine; give the block a number of its own"
            )
    fresh = new.filter(pa.array([value not in known for value in new[key].to_pylist()], pa.bool_()))
    # A column that came later is null in the rows shipped before it.
    types = {field.name: field.type for field in shipped.schema}
    wanted = [field.with_type(types.get(field.name, field.type)) for field in fresh.schema]
    return pa.concat_tables([shipped, fresh.cast(pa.schema(wanted))], promote_options="permissive").select(
        new.column_names
    )


def write(table: pa.Table, target: Path, *, narrow: bool) -> None:
    """Write ``table`` small; ``narrow`` turns doubles into 32-bit floats."""
    doubles = [field.name for field in table.schema if pa.types.is_floating(field.type)]
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


def corrected(launches: pa.Table, column: str, where: str, value: str) -> tuple[pa.Table, list[str], int]:
    """Return ``launches`` with ``value`` in ``column`` of the rows that ``where`` selects; what was there; how many."""
    frame = launches.to_pandas()
    rows = frame.query(where).index
    was = sorted(frame.loc[rows, column].unique())
    frame.loc[rows, column] = value
    return pa.Table.from_pandas(frame, schema=launches.schema, preserve_index=False), was, len(rows)


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
        "commits": [commit] if commit else sorted({str(note["git"]["commit"]) for note in notes}),
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
    parser.add_argument("--remark", help="on how the rows were measured, for provenance.json")
    parser.add_argument("--correct", nargs=4, action="append", default=[], metavar=("COLUMN", "WHERE", "VALUE", "WHY"))
    parser.add_argument("--without", nargs="+", default=[], choices=("steps", "requests"), metavar="steps|requests")
    options = parser.parse_args()
    cells, launches = read_cells(options.results), read_launches(options.results)
    if set(cells["evidence"]) != {"measured"}:
        sys.exit(f"{options.results}: holds simulated rows; only measured ones are shipped")
    target = DATA / str(cells["study"].iloc[0])
    target.mkdir(parents=True, exist_ok=True)
    provenance = target / "provenance.json"
    notes: list[dict[str, Any]] = json.loads(provenance.read_text()) if provenance.exists() else []
    note = describe(cells, launches, options.commit)
    note |= {name: value for name in ("remark", "without") if (value := getattr(options, name))}
    for name in _KEYS:
        unscored = name == "scores" and not (options.results / "scores.parquet").exists()
        if unscored:
            continue
        table = pq.read_table(options.results / f"{name}.parquet")
        if name in options.without:
            table = table.slice(0, 0)  # no rows: whoever reads the file finds one
        for column, where, value, why in options.correct if name == "launches" else ():
            table, was, rows = corrected(table, column, where, value)
            note.setdefault("corrections", []).append(
                {"column": column, "where": where, "was": was, "is": value, "rows": rows, "why": why}
            )
        shipped = target / f"{name}.parquet"
        write(joined(name, shipped, table), shipped, narrow=name in ("requests", "steps", "scores"))
    provenance.write_text(json.dumps([*notes, note] if note not in notes else notes, indent=1) + "\n")
    print(*sorted(f"{file.stat().st_size:>9,}  {file.name}" for file in target.iterdir()), sep="\n")


if __name__ == "__main__":
    main()
