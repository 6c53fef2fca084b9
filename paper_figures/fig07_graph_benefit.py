"""What each kind of graph saves of a step without graphs, by captured size.

Reads paper_figures/data, writes paper_figures/out: no GPU, no server, no network.
"""

from pathlib import Path

from artifact.plots import draw

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    print(*draw("fig07_graph_benefit", HERE / "data", HERE / "out"), sep="\n")
