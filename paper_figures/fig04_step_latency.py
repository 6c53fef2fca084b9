"""Decode step time against batch size, by model and mode, with the GPU's time and the floor that memory sets.

Reads paper_figures/data, writes paper_figures/out: no GPU, no server, no network.
"""

from pathlib import Path

from artifact.plots import draw

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    print(*draw("fig04_step_latency", HERE / "data", HERE / "out"), sep="\n")
