"""The shipped measurements in, the same cells simulated out: paper_figures/data/fidelity.parquet.

Figure 17 and its table read that file; run this again when measurements or the calibration change.
"""

from pathlib import Path

from artifact.analysis.fidelity import FILE, simulate

DATA = Path(__file__).resolve().parent / "data"

if __name__ == "__main__":
    rows = simulate(DATA)
    rows.to_parquet(DATA / FILE, index=False)
    print(f"{len(rows)} cells simulated: {DATA / FILE}")
