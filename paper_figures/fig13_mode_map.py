"""The best mode by stability and load, with margin and verdict.

Reads paper_figures/data, writes paper_figures/out: no GPU, no server, no network.
"""

from pathlib import Path

from artifact.plots import draw

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    print(*draw("fig13_mode_map", HERE / "data", HERE / "out"), sep="\n")
