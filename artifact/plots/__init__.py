"""Stored rows in, figures out. The one user of matplotlib; needs the columnar files alone.

Every figure says measured or simulated, the GPU, the model and n, and can be read in grey: modes differ in marker
and line style as well as in colour.
"""

from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from artifact.analysis.contrasts.chosen_sizes import STUDIES
from artifact.plots import (
    break_even,
    chosen_sizes,
    fallback,
    fidelity,
    launches,
    load_latency,
    memory,
    mode_map,
    stability,
    start_up,
    step_effects,
    step_latency,
    steps,
)
from artifact.plots.data import Data, load

_DPI = 160
_LOADS = ("load_sweep", "load_sweep_aa", "load_sweep_8b")
_SWEEPS = (*_LOADS, "traces", "sharegpt", "small_kv", "closed_loop")

# Any of these is reason enough to draw the starts of every study there is.
_STARTS = (*_SWEEPS, "startup", "smoke", "calibrate", "saturation", "hollow")

# name of the file -> the studies whose rows it shows, and the function that draws it
FIGURES: dict[str, tuple[tuple[str, ...], Callable[[Data], Figure]]] = {
    "fig01_step_time": (("calibrate",), steps.step_time),
    "fig02_tpot_memory": (("smoke",), launches.tpot_memory),
    "fig03_startup": (_STARTS, start_up.startup),
    "fig04_step_latency": (("step_latency",), step_latency.step_latency),
    "fig05_mixed_steps": (("step_latency",), step_latency.mixed_steps),
    "fig06_compile_vs_graph": (("step_latency",), step_effects.compile_against_graph),
    "fig07_graph_benefit": (("step_latency",), step_effects.benefit_by_size),
    "fig08_graph_memory": (_STARTS, memory.graph_memory),
    "fig09_fallback": (("fallback",), fallback.fallback_matrix),
    "fig10_break_even": ((*_SWEEPS, "smoke", "calibrate"), break_even.until_paid),
    "fig11_load_latency": (_LOADS, load_latency.load_latency),
    "fig12_pareto": (_LOADS, load_latency.pareto),
    "fig13_mode_map": (_LOADS, mode_map.mode_map),
    "fig14_dispatch": (_SWEEPS, stability.dispatch),
    "fig15_stability": (_LOADS, stability.realised_stability),
    "fig16_regret": (_SWEEPS, mode_map.regret),
    "fig17_fidelity": ((*_SWEEPS, *STUDIES, "confirm", "smoke", "hollow", "startup"), fidelity.held_out),
    "fig18_chosen_sizes": (STUDIES, chosen_sizes.chosen_against_own),
}


def draw(name: str, data_root: Path, out: Path) -> list[Path]:
    """Draw figure ``name`` from the study folders below ``data_root``; return the PDF and the PNG written to ``out``.

    Both are the same bytes for the same data: no date is stored in them. Raises NothingToDraw where the studies are
    not there or lack what the figure shows.
    """
    studies, function = FIGURES[name]
    figure = function(load(*(data_root / study for study in studies)))
    # Laid out once: saving does it twice a file, which takes longer than all the rest.
    figure.dpi = _DPI
    figure.draw_without_rendering()
    figure.set_layout_engine(None)
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for suffix, metadata in ((".pdf", {"CreationDate": None}), (".png", {"Software": None})):
        path = out / f"{name}{suffix}"
        figure.savefig(path, dpi=_DPI, metadata=metadata)
        written.append(path)
    return written
