"""A study's folder in, its figures as SVG in memory out: for a page that stands alone."""

import inspect
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import matplotlib as mpl

from artifact.errors import InputError
from artifact.plots import FIGURES
from artifact.plots.data import load

_FOR_ANY = ("fig02_tpot_memory", "fig03_startup")


@dataclass(frozen=True)
class Picture:
    """A figure: its name, what it shows, its own line on its rows, and the SVG; or the reason why there is none."""

    name: str
    shows: str
    label: str
    svg: bytes
    reason: str = ""


def pictures(folder: Path, study: str) -> list[Picture]:
    """Draw every figure that is made for ``study``; of a study that none is made for, those that suit any.

    The same rows give the same bytes. A figure that the rows do not allow comes with an empty ``svg`` and the reason.
    """
    made_for = {name: function for name, (studies, function) in FIGURES.items() if study in studies}
    found = []
    for name, function in (made_for or {name: FIGURES[name][1] for name in _FOR_ANY}).items():
        shows = (inspect.getdoc(function) or name).split("\n\n")[0].replace("\n", " ")
        try:
            figure = function(load(folder))
        except InputError as error:
            found.append(Picture(name, shows, "", b"", _without_place(str(error), folder)))
            continue
        buffer = BytesIO()
        with mpl.rc_context({"svg.hashsalt": name}):
            figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
        found.append(Picture(name, shows, figure.get_supxlabel(), buffer.getvalue()))
    return found


def _without_place(line: str, folder: Path) -> str:
    """Return ``line`` without the folders above ``folder``: a page that is handed on tells nobody's paths."""
    return line.replace(f"{folder.parent}/", "").removeprefix(f"{folder.parent}: ")
