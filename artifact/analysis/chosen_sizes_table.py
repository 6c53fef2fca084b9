"""A folder of studies in, the Markdown table of chosen capture sizes against vLLM's own out."""

from pathlib import Path

from artifact.analysis.contrasts.chosen_sizes import METRICS, TAKEN, Taken, compare, folders
from artifact.analysis.guide.answers import WORDS, standing
from artifact.analysis.markdown import contrast, markdown, said

_FORMS = {"graph_bytes": "{:.0f} to {:.0f} MiB", "capture_s": "{:.2f} to {:.2f} s", "tokens": "{:,.0f} to {:,.0f}"}
_UNITS = {"graph_bytes": 2**20}


def chosen_sizes_table(root: Path) -> str:
    """Return the table of the studies below ``root``, a row a tile and load, and what it is made of."""
    found = compare(folders(root))
    rows = []
    for place in dict.fromkeys(each.place for each in found.findings):
        ratios = {each.metric: contrast(each.row()) for each in found.findings if each.place == place}
        takes = {each.what: saved(each) for each in found.taken if (each.model, each.tile) == (place.model, place.tile)}
        rows.append(
            [
                f"{place.model}, {place.words}",
                *(ratios[metric] for metric in METRICS),
                *(takes.get(what, "not measured") for what in TAKEN),
            ]
        )
    header = ["model, load", *(WORDS[metric] for metric in METRICS), "graph memory", "capture", "KV tokens"]
    words = (
        f"{found.lists}; ratios of latency are chosen over vLLM's own, paired by block, with the 95 % interval and "
        f"the guide's verdicts{standing(found.findings)}. What capturing takes is paired by block too, a tile's loads "
        "sharing their starts. KV tokens: what profiling left for the cache, which holds the same blocks in both arms."
    )
    return f"{markdown(header, rows)}\n\n{said(found.launches, words)}"


def saved(taken: Taken) -> str:
    """Return what the chosen sizes save, or win, as a share with its interval, and both lists' means."""
    unit, less = _UNITS.get(taken.what, 1), "more" if taken.what == "tokens" else "less"
    ends = "" if taken.interval is None else f" [{100 * taken.interval[0]:.1f}, {100 * taken.interval[1]:.1f}]"
    means = _FORMS[taken.what].format(taken.own / unit, taken.chosen / unit)
    return f"{means}, {100 * taken.saved:.1f}{ends} % {less} (n = {taken.blocks})"
