"""What compilation gives a decode step, and what graphs give it beyond that, by model and batch size.

Reads paper_figures/data, writes paper_figures/out: no GPU, no server, no network.
"""

from pathlib import Path

from artifact.plots import draw

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    print(*draw("fig06_compile_vs_graph", HERE / "data", HERE / "out"), sep="\n")
