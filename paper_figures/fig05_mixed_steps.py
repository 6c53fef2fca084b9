"""Time of steps that decode and prefill at once against their tokens, by model and mode.

Reads paper_figures/data, writes paper_figures/out: no GPU, no server, no network.
"""

from pathlib import Path

from artifact.plots import draw

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    print(*draw("fig05_mixed_steps", HERE / "data", HERE / "out"), sep="\n")
