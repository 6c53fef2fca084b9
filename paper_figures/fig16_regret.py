"""What the default mode costs against the best one, by workload.

Reads paper_figures/data, writes paper_figures/out: no GPU, no server, no network.
"""

from pathlib import Path

from artifact.plots import draw

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    print(*draw("fig16_regret", HERE / "data", HERE / "out"), sep="\n")
