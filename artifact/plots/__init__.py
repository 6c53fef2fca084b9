"""Stored rows in, figures out. The one user of matplotlib; needs the columnar files alone.

Every figure says measured or simulated, the GPU, the model and n, and can be read in grey: modes differ in marker
and line style as well as in colour.
"""

from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from artifact.plots import launches, steps
from artifact.plots.data import Data, load

# name of the file -> the studies whose rows it shows, and the function that draws it
FIGURES: dict[str, tuple[tuple[str, ...], Callable[[Data], Figure]]] = {
    "fig01_step_time": (("calibrate",), steps.step_time),
    "fig02_tpot_memory": (("smoke",), launches.tpot_memory),
    "fig03_startup": (("smoke", "calibrate", "saturation", "load_sweep"), launches.startup),
}


def draw(name: str, data_root: Path, out: Path) -> list[Path]:
    """Draw figure ``name`` from the study folders below ``data_root``; return the PDF and the PNG written to ``out``.

    Both are the same bytes for the same data: no date is stored in them.
    """
    studies, function = FIGURES[name]
    figure = function(load(*(data_root / study for study in studies)))
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for suffix, metadata in ((".pdf", {"CreationDate": None}), (".png", {"Software": None})):
        path = out / f"{name}{suffix}"
        figure.savefig(path, dpi=160, metadata=metadata)
        written.append(path)
    return written
