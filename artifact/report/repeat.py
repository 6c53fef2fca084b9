"""The provenance of launches in; the commands that give such rows again, out."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from artifact.config import groups, load
from artifact.errors import InputError
from artifact.report.origin import Note, flat, shipments

# Of a launch's configuration, what a command line does not set: the plan sets the rate, the study its arms and tiles,
# a path's folder is not recorded, the engine is named already, and a fault is no setting.
_LEFT_OUT = (
    "workload.arrival.rate_per_s",
    "study.arms",
    "study.tiles",
    "trace.path",
    "engine.calibration",
    "engine.kind",
    "engine.fault",
)
_GROUPS = ("workload", "server", "engine", "hardware", "study", "trace")


def commands(study: str, notes: Sequence[Note], folder: Path) -> tuple[str, ...]:
    """Return the lines to type that plan, run, report and browse the study again, with the settings it was run with."""
    if study not in groups()["study"]:
        return (f"# conf/study of this version has no {study}: take the version that wrote the rows",)
    engine = "vllm" if any(note["evidence"] == "measured" for note in notes) else "sim"
    overrides = _overrides(study, engine, notes)
    line = shlex.join([f"study={study}", f"engine={engine}", *(overrides or [])])
    return (
        *_checkouts(notes, folder),
        *(["# other settings than the preset's cannot be told here: see them above"] if overrides is None else []),
        f"artifact plan {line}",
        f"artifact run {line}",
        "artifact figures figures.source=results",
        f"artifact report study={study}",
        f"artifact sync study={study}",
        "artifact ui",
    )


def _checkouts(notes: Sequence[Note], folder: Path) -> list[str]:
    """Return how to get the code that made the rows: of a machine without its history, what the shipment says."""
    commits = {str(note["git.commit"]) for note in notes if note.get("git.commit")}
    commits |= {commit for entry in shipments(folder) for commit in entry["commits"]}
    dirty = any(note.get("git.dirty") and note.get("git.commit") for note in notes)
    changed = "  # and local changes, which are not recorded" if dirty else ""
    lines = [f"git checkout {shlex.quote(commit)}{changed}" for commit in sorted(commits - {"None"})]
    return lines[:1] + [f"# some rows: {line}" for line in lines[1:]]


def _overrides(study: str, engine: str, notes: Sequence[Note]) -> list[str] | None:
    """Return ``key=value`` for each setting that the first launch has and the preset has not; None if unknown."""
    if not notes:
        return None
    first = notes[0]
    tiles = first.get("config.study.tiles") or ()
    tile = next((each for each in tiles if each.get("name") == first["tile"]), None)
    arm = first.get(f"config.study.arms.{first['arm']}")
    if tile is None or arm is None:
        return None
    workload = (tile.get("workloads") or [[]])[0]
    try:
        preset = load([f"study={study}", f"engine={engine}", *tile.get("overrides", ()), *arm, *workload])
    except InputError:  # of a version with other presets
        return None
    usual = flat(preset.model_dump(mode="json"))
    return [
        f"{key}={value if isinstance(value, str | int | float) and not isinstance(value, bool) else json.dumps(value)}"
        for key, value in sorted((key.removeprefix("config."), value) for key, value in first.items())
        if key in usual and usual[key] != value and key.split(".")[0] in _GROUPS and not key.startswith(_LEFT_OUT)
    ]
