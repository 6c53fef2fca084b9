"""``python -m artifact``: the same as the ``artifact`` command."""

import sys

from artifact.cli import main

if __name__ == "__main__":
    sys.exit(main())
