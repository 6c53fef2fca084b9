"""A step study's folder in; its tables as Markdown, as ARTIFACT.md shows them, out.

    python paper_figures/step_tables.py [steps | probe | effects | benefit] [FOLDER]

FOLDER is paper_figures/data/step_latency unless given: no GPU, no server, no network.
"""

import argparse
from pathlib import Path

import pandas as pd

from artifact.analysis.step_effects import compile_vs_graph, graph_benefit
from artifact.analysis.step_table import probe_cost, step_table
from artifact.plots.data import load

DATA = Path(__file__).resolve().parent / "data" / "step_latency"
TABLES = {
    "steps": lambda data: step_table(data.cells, data.steps, data.launches),
    "probe": lambda data: probe_cost(data.cells, data.steps),
    "effects": lambda data: compile_vs_graph(data.cells, data.steps),
    "benefit": lambda data: graph_benefit(data.cells, data.steps, data.launches),
}


def markdown(table: pd.DataFrame) -> str:
    """Return ``table`` as Markdown: numbers to four digits, a dash for what is not there, columns of those left out."""
    shown = table.dropna(axis="columns", how="all")
    rows = [list(shown.columns), ["---"] * len(shown.columns)]
    rows += [[_text(value) for value in row] for row in shown.itertuples(index=False)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _text(value: object) -> str:
    if pd.isna(value):
        return "-"
    if not isinstance(value, float):
        return str(value)
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", nargs="?", choices=TABLES, default="probe")
    parser.add_argument("folder", nargs="?", type=Path, default=DATA)
    options = parser.parse_args()
    data = load(options.folder)
    print(f"{data.label}\n\n{markdown(TABLES[options.table](data))}")


if __name__ == "__main__":
    main()
