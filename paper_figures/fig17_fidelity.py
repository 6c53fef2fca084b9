"""How far simulated cells are from the same cells measured, on what the calibration never saw.

Reads paper_figures/data, writes paper_figures/out: no GPU, no server, no network.
"""

from pathlib import Path

from artifact.plots import draw

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    print(*draw("fig17_fidelity", HERE / "data", HERE / "out"), sep="\n")
