"""How steps were dispatched, and padding, by workload and mode.

Reads paper_figures/data, writes paper_figures/out: no GPU, no server, no network.
"""

from pathlib import Path

from artifact.plots import draw

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    print(*draw("fig14_dispatch", HERE / "data", HERE / "out"), sep="\n")
