"""The shipped measurements in, the tables of ARTIFACT.md anew: every block between its markers is written again.

    python paper_figures/tables.py [FILE]

FILE is ARTIFACT.md unless given. A block begins with a line <!-- table: NAME --> and ends with <!-- end -->.
"""

import argparse
from pathlib import Path

from artifact.analysis.tables_markdown import rewrite

HERE = Path(__file__).resolve().parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=HERE.parent / "ARTIFACT.md")
    file = parser.parse_args().file
    file.write_text(rewrite(file.read_text(encoding="utf-8"), HERE / "data"), encoding="utf-8")


if __name__ == "__main__":
    main()
