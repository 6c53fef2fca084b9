"""The capture sizes that `artifact sizes` chose against vLLM's own: latencies, graph memory, capture time, KV tokens.

Reads paper_figures/data, writes paper_figures/out: no GPU, no server, no network.
"""

from pathlib import Path

from artifact.plots import draw

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    print(*draw("fig18_chosen_sizes", HERE / "data", HERE / "out"), sep="\n")
