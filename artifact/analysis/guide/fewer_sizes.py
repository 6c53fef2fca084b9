"""A folder of studies in; what capturing fewer sizes saves and does to latency out, as an object and as its text."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from artifact.analysis import every_study
from artifact.analysis.chosen_sizes_table import saved
from artifact.analysis.contrasts import chosen_sizes
from artifact.analysis.contrasts.sweep import DEFAULT
from artifact.analysis.guide.answers import by_metric, too_few
from artifact.analysis.markdown import markdown, records, said, shown
from artifact.analysis.sizes.question import ask
from artifact.analysis.sizes.report import flags
from artifact.analysis.starts import start_up
from artifact.config import load
from artifact.study.grid import Grid

Facts = dict[str, Any]
_SERVER = ["model", "attention", "max_num_seqs", "utilisation"]
_TOOK = ["graphs", "graph_bytes", "capture_s", "tokens"]
_COLUMNS = (("graph_bytes", 2**20, ".0f"), ("capture_s", 1.0, ".1f"), ("tokens", 1.0, ",.0f"))
_WHAT = {"graph_bytes": "graph memory", "capture_s": "capture", "tokens": "KV tokens"}


def gather(root: Path) -> Facts:
    """Return the recipe of study=sizes' first tile, what lists took by their length, and what study=sizes found.

    ``lists``: vLLM's own list and its first sizes, under the default mode, medians over starts of the server that was
    started with most of them, none on a cold cache; ``start_s`` is a whole start's with all sizes. ``kv_lost``: KV
    tokens that the graphs of the whole list cost, by share of the GPU. Null and empty where nothing was measured.
    """
    facts: Facts = {**_recipe(), "lists": [], "kv_lost": [], "start_s": None, "said": None, "study": None}
    folders = every_study.studies(root)
    if not folders:
        return facts
    launches = start_up.ready(every_study.read(folders).launches)
    own = launches[(launches[["requested_mode", "realised_mode"]] == DEFAULT).all(axis=1) & launches["own_list"]]
    own = start_up.with_tokens(own[own["state"] != "cold"])
    counts = own.groupby(_SERVER)["capture_sizes"].transform("nunique")
    tried = own[(counts == counts.max()) & (counts > 1)]
    tried = tried[tried.groupby(_SERVER).ngroup() == 0]
    if tried["default_sizes"].any():
        medians = tried.groupby("capture_sizes")[_TOOK].median().astype("float64").sort_index(ascending=False)
        facts["lists"] = [{"sizes": int(row.Index), **_known(row)} for row in records(medians)]
        model, attention, seats, utilisation = tried[_SERVER].iloc[0]
        facts["said"] = said(tried, f"{model}, {DEFAULT}, {utilisation:g} of the GPU; medians over starts.")
        facts["start_s"] = float(tried[tried["default_sizes"]]["start_s"].median())
        alike = (launches[_SERVER[:3]] == [model, attention, seats]).all(axis=1)
        whole = start_up.kv_tokens(launches[alike & launches["default_sizes"]])
        whole = whole[(whole["realised_mode"] == DEFAULT) & whole["lost"].notna()].sort_values("utilisation")
        columns = ["utilisation", "lost", "share", "how", "n"]
        facts["kv_lost"] = [dict(zip(columns, row, strict=True)) for row in whole[columns].to_numpy().tolist()]
    if studies := chosen_sizes.folders(root):
        facts["study"] = _study(studies)
    return facts


def _known(row: Any) -> Facts:
    return {name: None if pd.isna(value := getattr(row, name)) else value for name in _TOOK}


def _recipe() -> Facts:
    """Return the command of study=sizes' first tile at its first load, and the flags of the sizes it chose."""
    study = load([f"study={chosen_sizes.STUDIES[0]}"]).study
    tile = study.tiles[0]
    config, _ = Grid.of((), study, tile).arms[chosen_sizes.CHOSEN][0]
    load_ = config.workload
    question = ask([*tile.overrides, *study.arms[chosen_sizes.CHOSEN]])
    return {
        "command": f"artifact sizes workload={load_.name} workload.arrival.rate_per_s={load_.arrival.rate_per_s:.1f}",
        "flags": flags(question, question.config.server),
    }


def _study(studies: Sequence[Path]) -> Facts:
    found = chosen_sizes.compare(studies)
    latencies = by_metric(found.findings) or f"{too_few(found.findings).capitalize()}."
    return {
        "contrasts": [each.row() for each in found.findings],
        "taken": [each._asdict() for each in found.taken],
        "latencies": latencies,
        "saved": [f"{each.tile}, {_WHAT[each.what]}: {saved(each)}" for each in found.taken],
        "said": said(found.launches, f"{found.lists}."),
    }


def text(facts: Facts) -> list[str]:
    """Return the section's lines."""
    return [
        "vLLM captures its own list of sizes whatever the load. `artifact sizes` chooses a list for yours (a workload, "
        "or `workload=trace trace.path=FILE`), simulates what it does to latency, and prints the flags:",
        "",
        "```",
        facts["command"],
        f"vllm serve MODEL {facts['flags']}",
        "```",
        "",
        "What vLLM's own list takes, and what its first sizes alone do. Cut short like that it leaves larger batches "
        "without a graph; a chosen list keeps large sizes and leaves out others. Graphs share a pool whose size the "
        "largest sets, so it saves less memory than a short one does.",
        "",
        *_lists(facts),
        "",
        "What the chosen sizes do against vLLM's own:",
        "",
        *_chosen(facts["study"]),
        "",
        "When not to bother:",
        "",
        *_not_to_bother(facts),
    ]


def _lists(facts: Facts) -> list[str]:
    if not facts["lists"]:
        return ["Not measured yet: `artifact run study=startup` makes its rows."]
    whole = facts["lists"][0]

    def beside(row: Facts, name: str, unit: float, form: str) -> str:
        """Return a value, and how much less or more than the whole list's it is."""
        value = row[name]
        if value is None or row is whole or not whole[name]:
            return shown(None if value is None else value / unit, form)
        change = value / whole[name] - 1
        return f"{value / unit:{form}}, {abs(change):.1%} {'more' if change > 0 else 'less'}"

    rows = [
        [
            str(row["sizes"]),
            shown(row["graphs"], ",.0f"),
            *(beside(row, name, unit, form) for name, unit, form in _COLUMNS),
        ]
        for row in facts["lists"]
    ]
    header = ["sizes", "graphs", "graph memory, MiB", "capture, s", "KV tokens"]
    return [markdown(header, rows), "", facts["said"]]


def _chosen(study: Facts | None) -> list[str]:
    if study is None:
        return ["Not measured yet: `artifact run study=sizes` makes its rows."]
    return [f"- {line}" for line in (study["latencies"], *study["saved"])] + ["", study["said"]]


def _not_to_bother(facts: Facts) -> list[str]:
    lines = ["- For speed: a shorter list pads more. Memory and start-up are what it saves."]
    if facts["lists"]:
        whole, shortest = (shown(facts["lists"][end]["capture_s"], ".1f") for end in (0, -1))
        lines.append(
            f"- Where engines rarely start: of {facts['start_s']:.0f} s that a start takes without importing vLLM, "
            f"capturing all sizes takes {whole} s, and the shortest list above {shortest} s."
        )
    if facts["kv_lost"]:
        shares = "; ".join(
            f"{each['share']:.2%} at {each['utilisation']:g} of the GPU ({each['how']}, n = {each['n']})"
            for each in facts["kv_lost"]
        )
        lines.append(
            f"- Where memory is plenty: the graphs of the whole list cost this share of the KV tokens: {shares}."
        )
    return lines
