"""A folder of studies in; all that GUIDE.md says, as one JSON-able object, out.

Every number comes from the rows below that folder but for what is named ``simulated``.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from artifact.analysis.contrasts import confirmed, outcomes, rates, stability_effects, sweep, verdicts
from artifact.analysis.contrasts.sweep import MODES, Place, Sweep, blocks_needed
from artifact.analysis.contrasts.verdicts import Finding
from artifact.analysis.guide import answers, fewer_sizes, launch_cost
from artifact.analysis.guide.answers import WORDS
from artifact.config import load
from artifact.errors import InputError
from artifact.metrics.latency import per_request
from artifact.metrics.memory import kv_tokens_lost
from artifact.study.store import read_requests

_CLOSED = "closed_loop"  # the study of controls: never held against open loops
_SCARCE = "small-kv"
_PRIMARY = "tpot_p50_ms"


def gather(root: Path, *, simulate: bool = True) -> dict[str, Any]:
    """Return the guide of the studies below ``root``; without ``simulate`` the launch costs hold measurements alone.

    Raises InputError where no sweep is there.
    """
    rows = sweep.read(root)
    if rows is None:
        raise InputError(f"{root}: no load sweep to write a guide from; artifact run study=load_sweep makes one")
    findings = verdicts.findings(rows, tuple(WORDS))
    costs = outcomes.costs(rows)
    open_loops = [each for each in findings if not _is_closed(rows, each.place) and _SCARCE not in each.place.tile]
    by_model: dict[str, list[Finding]] = {}
    for each in open_loops:
        by_model.setdefault(each.place.model, []).append(each)
    places = {each.place for each in open_loops}
    regrets = {metric: outcomes.regrets(rows, metric) for metric in (_PRIMARY, "ttft_p99_ms")}
    return {
        "evidence": rows.evidence,
        "gpus": list(rows.gpus),
        "models": sorted(by_model),
        "launches": len(rows.launches),
        "tiles": _tiles(rows),
        "answer": {
            model: answers.headline(
                [each for each in of if each.metric == _PRIMARY],
                [each for each in regrets[_PRIMARY] if each.place.model == model and each.place in places],
                [each for each in costs if each.model == model],
            )
            for model, of in by_model.items()
        },
        "workloads": [_workload(findings, place) for place in rows.places() if not _is_closed(rows, place)],
        "confirmed": _confirmed(root),
        "regret": [each._asdict() for of in regrets.values() for each in of],
        "costs": [_cost(cost) for cost in costs],
        "flags": {mode: f"--compilation-config '{json.dumps({'cudagraph_mode': mode})}'" for mode in MODES},
        "rates": [each._asdict() for each in rates.sustained(rows)],
        "capacity": [each._asdict() for each in rates.capacities(rows)],
        "normalised_latency": _normalised(rows, root),
        "launch_cost": _launch_cost(rows, simulate=simulate),
        "fewer_sizes": fewer_sizes.gather(root),
        "noise": [_noise(each) for each in outcomes.noise_floor(rows)],
        "questions": _questions(rows, findings, by_model),
        "contrasts": [each.row() for each in findings],
    }


def _is_closed(rows: Sweep, place: Place) -> bool:
    return bool((rows.at(place)["study"] == _CLOSED).all())


def _tiles(rows: Sweep) -> list[dict[str, Any]]:
    """Return, by tile, the blocks in which every mode ended ok, those started and needed, and the machines."""
    found = []
    for tile, model in sorted({(place.tile, place.model) for place in rows.places()}):
        cells = rows.cells[(rows.cells["tile"] == tile) & (rows.cells["status"] == "ok")]
        blocks = rows.blocks_of(tile)
        found.append(
            {
                "model": model,
                "tile": tile,
                "blocks": int(blocks.sum()),
                "started": len(blocks),
                "needed": blocks_needed(model),
                "machines": int(cells["host_id"].nunique()),
            }
        )
    return found


def _workload(findings: list[Finding], place: Place) -> dict[str, Any]:
    """Return the advice at a place, and the best of the other modes by metric."""
    own = [each for each in findings if each.place == place]
    best = {}
    for metric in WORDS:
        known = [each for each in own if each.metric == metric and each.ratio is not None]
        best[metric] = min(known, key=lambda each: each.ratio or 1.0).row() if known else None
    return {**place._asdict(), "words": place.words, "advice": answers.advice(own), "best": best}


def _confirmed(root: Path) -> dict[str, Any] | None:
    """Return what study=confirm found on a trace; null where it was not run."""
    found = confirmed.read(root)
    return found and {"trace": found.trace, "contrasts": [each.row() for each in found.findings]}


def _cost(cost: outcomes.Cost) -> dict[str, Any]:
    """Return the cost with the tokens of KV cache that its graphs' memory would have held."""
    model = load([f"model={cost.model}"]).model
    graph_bytes = None if cost.graph_mib is None else round(cost.graph_mib * 2**20)
    return {**cost._asdict(), "kv_tokens_lost": kv_tokens_lost(graph_bytes, model.kv_bytes_per_token)}


def _noise(noise: outcomes.Noise) -> dict[str, Any]:
    return {**noise._asdict(), "seen_with": {blocks: noise.seen_with(blocks) for blocks in (5, 8)}}


def _normalised(rows: Sweep, root: Path) -> list[dict[str, Any]]:
    """Return mean end-to-end time over output tokens, ms, by rate and mode: median over blocks. ShareGPT alone."""
    study = "sharegpt"
    cells = rows.cells[(rows.cells["study"] == study) & rows.cells["unranked"].isna()]
    if cells.empty:
        return []
    requests = read_requests(root / study, list(cells["cell_id"]))
    means = {str(name): float(per_request(of)["normalised_s"].mean()) for name, of in requests.groupby("cell_id")}
    cells = cells.assign(normalised_ms=1e3 * cells["cell_id"].map(means.get).astype("float64"))
    return [
        {
            "model": place.model,
            "level": place.level,
            "words": place.words,
            "mode": mode,
            "blocks": len(of_mode),
            "normalised_ms": float(np.median(of_mode["normalised_ms"])),
        }
        for place in rows.places()
        for mode in MODES
        if len(of_mode := cells[cells.index.isin(rows.at(place).index) & (cells["arm"] == mode)])
    ]


def _launch_cost(rows: Sweep, *, simulate: bool) -> dict[str, Any]:
    return {
        "probes": launch_cost.probes(rows),
        "slow_host": launch_cost.slow_host(),
        "simulated": launch_cost.sensitivity() if simulate else [],
    }


def _questions(rows: Sweep, findings: list[Finding], by_model: dict[str, list[Finding]]) -> list[dict[str, Any]]:
    """Return the study's questions with an answer a model."""
    capacities = rates.capacities(rows)
    moved = stability_effects.stability_effects(rows, _PRIMARY)
    scarce = [each for each in findings if _SCARCE in each.place.tile]
    servers = rows.cells[rows.cells["tile"].str.contains(_SCARCE)]["launch_id"]
    found = []
    for model, own in by_model.items():
        of_model = rows.cells[rows.cells["model"] == model]
        plenty = [each for each in own if each.place.workload == "churn"]
        few = [each for each in scarce if each.place.model == model]
        launches = rows.launches[rows.launches["launch_id"].isin(servers) & (rows.launches["model"] == model)]
        of_capacity = [each for each in capacities if each.model == model]
        for question, answer in (
            ("When, if ever, does FULL beat FULL_AND_PIECEWISE, and why?", answers.full_against_default(own, of_model)),
            ("When is PIECEWISE enough?", answers.enough(own, "PIECEWISE")),
            ("Is there a load or batch beyond which NONE is as good?", answers.none_at_load(own, of_capacity)),
            (
                "Does stability matter beyond what load explains?",
                answers.stability([each for each in moved if each.model == model]),
            ),
            ("How does the ranking change when KV is scarce?", answers.scarce_kv(few, plenty, launches)),
        ):
            found.append({"model": model, "question": question, "answer": " ".join(answer.split())})
    return found
