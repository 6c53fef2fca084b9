"""A sweep in; the rate that each mode sustains in open loops, and what it gives with 256 in flight, out."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from artifact.analysis.contrasts import inference
from artifact.analysis.contrasts.sweep import DEFAULT, MODES, Place, Sweep, blocks_needed, queue_grows
from artifact.analysis.contrasts.verdicts import spread_by_model

CAPACITY = "saturate"  # the closed loop with as many in flight as the study's server has seats


class Sustained(NamedTuple):
    """The highest level that a mode sustains: its queue grows in at most half of the blocks, there and below.

    Null where it grows at the lowest level already. ``fails_at`` is the next level measured; null where the mode
    sustains all there is, so that its limit lies above.
    """

    model: str
    tile: str
    workload: str
    mode: str
    level: str | None
    rate_per_s: float | None  # mean offered rate there
    fails_at: str | None
    blocks: int  # fewest over the levels


def sustained(sweep: Sweep) -> list[Sustained]:
    """Return what each mode sustains of each tile's workload, over the levels that are loads or rates."""
    found = []
    for (model, tile, workload), places in _by_workload(sweep.places()).items():
        for mode in MODES:
            best: tuple[str, float] | None = None
            fails_at = None
            counts = []
            for place in places:
                cells = sweep.at(place)
                cells = cells[(cells["arm"] == mode) & (cells["status"] == "ok")]
                if cells.empty:
                    continue
                counts.append(len(cells))
                if queue_grows(cells).mean() > 0.5:
                    fails_at = place.level
                    break
                best = place.level, float(cells["offered_rate"].astype("float64").mean())
            if counts:
                level, rate = best or (None, None)
                found.append(Sustained(model, tile, workload, mode, level, rate, fails_at, min(counts)))
    return found


def _by_workload(places: Iterable[Place]) -> dict[tuple[str, str, str], list[Place]]:
    """Return the places whose levels are loads or rates, ascending, by model, tile and workload."""
    found: dict[tuple[str, str, str], list[Place]] = {}
    for place in places:
        if place.amount is not None:
            found.setdefault((place.model, place.tile, place.workload), []).append(place)
    return {key: sorted(each, key=lambda place: place.amount or 0.0) for key, each in found.items()}


class Capacity(NamedTuple):
    """Output tokens per second with 256 in flight, and its ratio to the default's: above 1 is more."""

    model: str
    mode: str
    blocks: int
    needed: int
    tokens_per_s: float  # geometric mean over launches
    ratio: float | None  # geometric mean over blocks with both; null for the default itself and without such a block
    interval: tuple[float, float] | None


def capacities(sweep: Sweep) -> list[Capacity]:
    """Return each mode's throughput in the closed loop that keeps every seat taken."""
    places = [place for place in sweep.places() if place.workload == CAPACITY]
    found = []
    for mode in MODES:
        samples = {place: sweep.sample(place, mode, "output_tokens_per_s") for place in places}
        spreads = spread_by_model(samples) if mode != DEFAULT else {}
        for place in places:
            cells = sweep.at(place)
            own = cells[(cells["arm"] == mode) & cells["unranked"].isna()]["output_tokens_per_s"].dropna()
            if own.empty:
                continue
            logs, values = samples[place], np.log(own.to_numpy(dtype=np.float64))
            ratio = float(np.exp(logs.mean())) if len(logs) and mode != DEFAULT else None
            interval = None
            if place in spreads:
                paired = inference.estimate(logs, spreads[place])
                interval = math.exp(paired.low), math.exp(paired.high)
            needed = blocks_needed(place.model)
            found.append(Capacity(place.model, mode, len(own), needed, float(np.exp(values.mean())), ratio, interval))
    return found
