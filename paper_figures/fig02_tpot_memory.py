"""TPOT by mode and workload, beside the memory of the captured graphs.

Reads paper_figures/data, writes paper_figures/out: no GPU, no server, no network.
"""

from pathlib import Path

from artifact.plots import draw

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    print(*draw("fig02_tpot_memory", HERE / "data", HERE / "out"), sep="\n")
