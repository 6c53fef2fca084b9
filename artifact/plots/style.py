"""How figures look: arms in; colours, markers, axes and captions out. Readable in grey."""

from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

mpl.use("agg")

# Okabe-Ito colours: distinct for the colour-blind too, and of different lightness.
STYLES: dict[str, dict[str, Any]] = {
    "EAGER": {"color": "#999999", "marker": "x", "linestyle": ":"},
    "NONE": {"color": "#000000", "marker": "s", "linestyle": "--"},
    "PIECEWISE": {"color": "#E69F00", "marker": "^", "linestyle": "-."},
    "FULL": {"color": "#0072B2", "marker": "o", "linestyle": "-"},
    "FULL_DECODE_ONLY": {"color": "#009E73", "marker": "v", "linestyle": "--"},
    "FULL_AND_PIECEWISE": {"color": "#CC79A7", "marker": "D", "linestyle": "-"},
}

BESIDE: dict[str, Any] = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontsize": 7}
ABOVE: dict[str, Any] = {"xytext": (0, 5), "textcoords": "offset points", "ha": "center", "fontsize": 7}


def arm_style(arm: str) -> dict[str, Any]:
    """Return colour, marker and line style of an arm: its mode's, or a grey of its own for another backend."""
    return STYLES.get(arm, {"color": "#56B4E9", "marker": "P", "linestyle": ":"})


def arm_order(arms: pd.Series) -> list[str]:
    """Return the distinct arms, modes first in the order of STYLES."""
    known = list(STYLES)
    return sorted(set(arms), key=lambda arm: (known.index(arm) if arm in known else len(known), arm))


def realised(cells: pd.DataFrame, arm: str) -> str:
    """Return the arm's name, with what it came to where that is something else."""
    realised = ", ".join(sorted(cells[cells["arm"] == arm]["realised_mode"].dropna().unique()))
    return arm if realised == arm or not realised else f"{arm}\n= {realised.replace(':', ', ')}"


def plain_numbers(axis: Any) -> None:
    """Write 2 and not 2 x 10^0, on the marks of 1, 2 and 5 alone."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("")


def said(launches: pd.DataFrame) -> str:
    """Return what the launches are: evidence, GPUs, models, versions."""
    evidence = ", ".join(sorted(launches["evidence"].unique()))
    gpus = ", ".join(sorted(launches["gpu_name"].dropna().unique())) or "GPU unknown"
    return f"{evidence}, {gpus}, {', '.join(sorted(launches['model'].unique()))}, vLLM 0.21.0"


def caption(figure: Figure, text: str) -> None:
    """Write what the rows are below the figure: evidence, GPU, model, versions, n."""
    figure.supxlabel(text, fontsize=7, color="#444444")
