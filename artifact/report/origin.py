"""The provenance of launches in; machine, versions and settings they come from, out."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from artifact.errors import InputError
from artifact.report.table import Table, table, text

Note = Mapping[str, Any]

# key of a launch's provenance -> what the page calls it
_MACHINE = {
    "evidence": "evidence",
    "gpu.name": "GPU",
    "gpu.driver": "driver",
    "gpu.total_bytes": "GPU memory, bytes",
    "gpu.mig": "MIG",
    "cpu": "CPU",
    "cores": "cores",
    "kernel": "kernel",
    "host_id": "host",
    "image_digest": "container image",
    "started": "started",
    "git.commit": "commit",
    "git.dirty": "with local changes",
    "artifact": "artifact",
    "python": "Python",
}
_UNKNOWN = "not recorded"


def notes(launches: pd.DataFrame) -> list[Note]:
    """Return each launch's provenance, flat (``gpu.name``), with its evidence, arm and tile; the earliest first.

    A text that is no JSON object counts as one that says nothing.
    """
    found: list[Note] = []
    for row in launches.to_dict("records"):
        try:
            whole = json.loads(row["provenance"])
        except ValueError:
            whole = {}
        note = flat(whole if isinstance(whole, dict) else {})
        found.append(note | {"evidence": row["evidence"], "arm": row["arm"], "tile": row["tile"]})
    return sorted(found, key=lambda note: str(note.get("started")))


def flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested values under dotted keys."""
    found: dict[str, Any] = {}
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            found |= flat(inner, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = inner
    return found


def _values(notes: Sequence[Note], key: str, absent: str = _UNKNOWN) -> str:
    """Return the values that the launches have for ``key``, each once; of times the first and the last."""
    found = list(dict.fromkeys(_value(note, key, absent) for note in notes))
    if key == "started" and len(found) > 1:
        return f"{found[0]} to {found[-1]}"
    return "; ".join(found) or absent


def _value(note: Note, key: str, absent: str) -> str:
    value = note.get(key)
    if value is None:
        # Where there is no GPU, that is the reason for whatever it lacks.
        return str(note.get("gpu.reasons.gpu", absent)) if key == "gpu.name" else absent
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else text(value)


def environment(notes: Sequence[Note], folder: Path) -> tuple[Table, ...]:
    """Return the machine, the versions, the settings, and what was corrected by hand (provenance.json), as tables."""
    machine = [{"what": name, "found": _values(notes, key)} for key, name in _MACHINE.items()]
    packages = sorted({key for note in notes for key in note if key.startswith("packages.")})
    versions = [
        {"what": key.removeprefix("packages."), "found": _values(notes, key, "not installed")} for key in packages
    ]
    settings = sorted({key for note in notes for key in note if key.startswith("config.")})
    shown = [
        {"what": key.removeprefix("config."), "found": _values(notes, key)}
        for key in settings
        if not key.startswith(("config.study.arms", "config.study.tiles", "config.explain", "config.figures"))
    ]
    heads = {"what": "", "found": "of the engine starts"}
    tables = [
        table("machine and code", heads, machine),
        table("versions", {"what": "package", "found": "version"}, versions),
        table("settings: one value where all engine starts agree", heads, shown, folded=True),
    ]
    corrections = [each for entry in shipments(folder) for each in entry["corrections"]]
    if corrections:
        columns = {name: name for name in ("column", "where", "was", "is", "rows", "why")}
        tables.insert(0, table("corrected by hand", columns, corrections))
    return tuple(each for each in tables if each.rows)


def shipments(folder: Path) -> list[dict[str, Any]]:
    """Return what provenance.json says beside shipped measurements: how they got there; nothing for results."""
    file = folder / "provenance.json"
    if not file.is_file():
        return []
    try:
        shipments = [dict(entry) for entry in json.loads(file.read_text(encoding="utf-8"))]
        for entry in shipments:
            entry["corrections"] = [dict(each) for each in entry.get("corrections", [])]
            entry["commits"] = [str(each) for each in entry.get("commits", [])]
    except (ValueError, TypeError):
        raise InputError(f"{file}: is no list of shipments; paper_figures/ship.py writes it") from None
    return shipments
