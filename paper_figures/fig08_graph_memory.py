"""Memory of the captured graphs beside vLLM's estimate, and the KV tokens it costs.

Reads paper_figures/data, writes paper_figures/out: no GPU, no server, no network.
"""

from pathlib import Path

from artifact.plots import draw

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    print(*draw("fig08_graph_memory", HERE / "data", HERE / "out"), sep="\n")
