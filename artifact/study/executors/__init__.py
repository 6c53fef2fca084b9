"""A plan in; its launches carried out where ``executor`` says, and one summary and one store, out.

``local`` is ``study.run``. The others hand out units, whole blocks of a tile, and their workers run them with the same
code, into the same store. Each has: ``workers``, how many units it works on at once at most; ``add(unit)``;
``ended(timeout_s)``, which waits that long and gives the units that ended, each with the error that concerns every
cell, a line on how its worker died, or None; and ``close()``, which ends what still runs.
"""

from artifact.study.executors.dispatch import execute

__all__ = ["execute"]
