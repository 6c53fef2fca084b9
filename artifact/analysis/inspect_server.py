"""A recording of a live server in; what it dispatched, how stable its batches were and how it served, out.

The recorder sits in the front end: it knows what was dispatched, not what was captured. So the mode after resolution is
what fits the steps, and whether graphs were behind it (hollow) is what the rules of ``artifact.graphs`` predict.
"""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from artifact.analysis.dispatch_rules import (
    METRICS_FLAG,
    Kind,
    Realised,
    graphs_of,
    realised,
    server_of,
    why_not_replayed,
)
from artifact.errors import InputError
from artifact.metrics import latency, stability
from artifact.records import STEP_COLUMNS, typed
from artifact.schema import Config
from artifact.workloads import recordings, traces
from artifact.workloads.record_format import FINISH_REASONS, RUNTIME_MODES, UNKNOWN
from artifact.workloads.recordings import Recording

_BEFORE = "as the server was configured: the front end never learns what the worker made of it"
_UNKNOWN_MODES = f"unknown: vLLM reports runtime modes only where vllm serve was started with {METRICS_FLAG}"
_MOST_SIZES = 8


def inspect_server(config: Config) -> dict[str, Any]:
    """Return the JSON object of the ``inspect`` command for ``record.path`` and ``record.window``.

    Shares are of the steps, or scheduled tokens, whose runtime mode is known. Latencies are vLLM's own: from the
    arrival at the front end, which is not the client. What is undefined is None, with a reason where one would be
    missed. Raises InputError where there is no recording, or nothing in the window.
    """
    if config.record.path is None:
        raise InputError("record.path: name the recording's folder, record.path=FOLDER; ARTIFACT_RECORD made it")
    whole, recording, zero_s = _asked(Path(config.record.path), config.record.window)
    settings = recording.servers[0]
    steps = _steps(recording, zero_s)
    kinds = _kinds(recording, settings)
    mode = realised(settings, kinds)
    span = _span(recording)
    return {
        "recording": config.record.path,
        "from": datetime.fromtimestamp(span[0], UTC).isoformat(timespec="milliseconds"),
        "seconds": span[1] - span[0],
        "segments": recording.segments,
        "server": settings,
        "requested_mode": None if mode.requested is None else mode.requested.value,
        "requested_mode_is": _BEFORE,
        "resolved_modes": [each.resolved.value for each in mode.possible],
        "hollow": mode.hollow,
        "mode_reason": mode.reason,
        "steps": len(steps),
        "dispatch": _dispatch(steps) if kinds else None,
        "dispatch_reason": None if kinds else _UNKNOWN_MODES,
        "padding_ratio": stability.padding_ratio(steps),
        "fallthrough": _fallthrough(kinds, settings, mode),
        "stability": _stability(recording, steps, settings),
        "requests": _requests(recording),
        "latency": _latency(recording),
        "warnings": _warnings(whole, recording, mode, kinds, zero_s),
    }


def _zero(recording: Recording) -> float:
    """Return the time that windows count from: the first finished request's arrival, as for a trace."""
    if len(recording.finished):
        return float(recording.finished["arrival_s"].iloc[0])
    return min(float(frame["t_s"].min()) for frame in (recording.steps, recording.first_tokens) if len(frame))


def _asked(path: Path, window: tuple[float, float] | None) -> tuple[Recording, Recording, float]:
    """Return the recording, what of its latest server is in ``window``, and the time that windows count from."""
    if window is None:
        whole = recordings.read(path)
        latest = whole.of_server(whole.latest)
        return whole, latest, _zero(latest)
    if window[0] >= window[1]:
        raise InputError(f"record.window={list(window)}: must be [from, to) in seconds with from < to")
    whole = recordings.read(path, every_step=False)
    latest = whole.of_server(whole.latest)
    zero_s = _zero(latest)
    start_s, end_s = (zero_s + at for at in window)
    part = recordings.read(path, between=(start_s, end_s))
    # The server may have gone on, and made room, between the two: it is known by its settings, not by its number.
    inside = part.of_server(part.servers.index(latest.servers[0])) if latest.servers[0] in part.servers else latest
    first_tokens, finished = (
        frame[frame["arrival_s"].between(start_s, end_s, inclusive="left")].reset_index(drop=True)
        for frame in (inside.first_tokens, inside.finished)
    )
    inside = replace(inside, first_tokens=first_tokens, finished=finished)
    if not (len(inside.steps) or len(inside.finished)):
        last_s = _span(latest)[1] - zero_s
        raise InputError(f"record.window={list(window)}: nothing there; the recording lasts {last_s:.3f} s")
    return whole, inside, zero_s


def _span(recording: Recording) -> tuple[float, float]:
    frames = [frame for frame in (recording.steps, recording.finished, recording.first_tokens) if len(frame)]
    return min(float(frame["t_s"].min()) for frame in frames), max(float(frame["t_s"].max()) for frame in frames)


def _steps(recording: Recording, zero_s: float) -> pd.DataFrame:
    """Return the steps with records.STEP_COLUMNS, null where vLLM did not report."""
    rows = recording.steps
    names = pd.Series([*RUNTIME_MODES, None], dtype="string")
    known = {name: rows[name].where(rows[name] != UNKNOWN) for name in ("num_tokens", "padded_tokens")}
    frame = rows.assign(
        step=np.arange(len(rows)),
        t_s=rows["t_s"] - zero_s,
        runtime_mode=names.iloc[rows["mode"].where(rows["mode"] != UNKNOWN, len(RUNTIME_MODES))].to_numpy(),
        **known,
    )
    return typed(frame, STEP_COLUMNS)


def _kinds(recording: Recording, settings: dict[str, Any]) -> list[Kind]:
    """Return the distinct dispatches, most frequent first; none where vLLM reported no runtime modes."""
    rows = recording.steps[recording.steps["mode"] != UNKNOWN]
    decode = (rows["sampled_tokens"] == rows["num_tokens"]) & _one_token_queries(settings)
    names = ["num_tokens", "mode", "padded_tokens", "decode"]
    counts = rows.assign(decode=decode).groupby(names).size().sort_values(ascending=False, kind="stable")
    table = counts.rename("steps").reset_index()
    columns = (table[name].tolist() for name in (*names, "steps"))
    return [
        Kind(tokens, RUNTIME_MODES[mode], padded, is_decode, steps)
        for tokens, mode, padded, is_decode, steps in zip(*columns, strict=True)
    ]


def _one_token_queries(settings: dict[str, Any]) -> bool:
    """Return whether a step that gave a token for each scheduled one is a batch of one-token queries, and no other.

    Not so where speculation gives several at once, or other front ends were told of some of them.
    """
    return settings.get("api_servers") in (None, 1) and not settings.get("num_speculative_tokens")


def _dispatch(steps: pd.DataFrame) -> list[dict[str, Any]]:
    known = steps[steps["runtime_mode"].notna()]
    tokens = known.groupby("runtime_mode")["num_tokens"].sum()
    counts = known["runtime_mode"].value_counts()
    return [
        {
            "runtime_mode": mode,
            "steps": int(counts.get(mode, 0)),
            "step_share": float(counts.get(mode, 0) / len(known)),
            "tokens": int(tokens.get(mode, 0)),
            "token_share": float(tokens.get(mode, 0) / tokens.sum()),
        }
        for mode in reversed(RUNTIME_MODES)
    ]


def _fallthrough(kinds: list[Kind], settings: dict[str, Any], mode: Realised) -> list[dict[str, Any]] | None:
    """Return, by reason, the steps that did not replay the graph the mode means for them; None where unknown."""
    server = server_of(settings)
    graphs = None if server is None or not mode.possible else graphs_of(mode.possible[0].resolved, server)
    if not kinds or graphs is None:
        return None
    total = sum(kind.steps for kind in kinds)
    found: dict[tuple[str, str], list[Kind]] = {}
    for kind in kinds:
        if (reason := why_not_replayed(kind, graphs, mode.hollow)) is not None:
            found.setdefault((kind.runtime_mode, reason), []).append(kind)
    rows = []
    for (runtime, reason), group in found.items():
        sizes: dict[int, int] = {}
        for kind in group:
            sizes[kind.num_tokens] = sizes.get(kind.num_tokens, 0) + kind.steps
        steps = sum(sizes.values())
        most = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))[:_MOST_SIZES]
        rows.append(
            {
                "runtime_mode": runtime,
                "reason": reason,
                "steps": steps,
                "step_share": steps / total,
                "from": min(sizes),
                "to": max(sizes),
                "batch_sizes": len(sizes),
                "most_frequent": [{"num_tokens": tokens, "steps": count} for tokens, count in most],
            }
        )
    return sorted(rows, key=lambda row: -row["steps"])


def _stability(recording: Recording, steps: pd.DataFrame, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Return how constant the batches of each engine were; the steps of two engines are not one sequence."""
    rows = []
    for writer, places in recording.steps.groupby("writer").indices.items():
        own, raw = steps.iloc[places], recording.steps.iloc[places]
        known = raw[raw["num_tokens"] != UNKNOWN]
        told = len(known) > 0 and _one_token_queries(settings)
        running = own["num_running"].to_numpy(dtype=np.float64)
        rows.append(
            {
                "engine": recording.writers[int(str(writer))]["engine"],
                "pid": recording.writers[int(str(writer))]["pid"],
                "steps": len(own),
                "running_cv": stability.running_cv(own),
                "running_p50": latency.percentile(running, 50),
                "running_max": int(running.max()),
                "waiting_max": int(own["num_waiting"].max()),
                "kv_usage_max": float(own["kv_usage"].max()),
                "graph_changes_per_s": stability.graph_changes_per_s(own),
                "decode_step_share": float((known["sampled_tokens"] == known["num_tokens"]).mean()) if told else None,
            }
        )
    return rows


def _requests(recording: Recording) -> dict[str, Any]:
    """Return rates and lengths of the requests that finished, and how many did not."""
    done = recording.finished
    usable = done[(done["prompt_tokens"] > 0) & (done["output_tokens"] > 0)]
    finish = done["finish"].value_counts()
    found: dict[str, Any] = {
        "finished": len(done),
        "unfinished": len(recordings.unfinished_arrivals(recording)),
        "waiting_at_end": recordings.waiting_at_end(recording),
        "finish_reasons": {name: int(finish.get(place, 0)) for place, name in enumerate(FINISH_REASONS)},
    }
    names = ("duration_s", "rate_per_s", "arrival_cv", "prompt_tokens", "output_tokens", "rate_profile")
    if usable.empty:
        return found | {**dict.fromkeys(names), "cached_prompt_share": None}
    prompts, outputs = (usable[name].to_numpy(dtype=np.int64) for name in ("prompt_tokens", "output_tokens"))
    arrivals = usable["arrival_s"].to_numpy()
    described = traces.describe(traces.Trace("recording", arrivals - arrivals[0], prompts, outputs))
    cached = float(usable["cached_tokens"].clip(lower=0).sum() / usable["prompt_tokens"].sum())
    return found | {name: described[name] for name in names} | {"cached_prompt_share": cached}


def _latency(recording: Recording) -> dict[str, float | None]:
    """Return percentiles in ms of TTFT, TPOT and E2E as vLLM has them; None where there are too few values."""
    first, done = recording.first_tokens, recording.finished
    values = {
        "ttft": (first["t_s"] - first["arrival_s"]).to_numpy(),
        "tpot": done["tpot_s"].dropna().to_numpy(),
        "e2e": (done["t_s"] - done["arrival_s"]).to_numpy(),
    }
    return {
        f"{name}_p{rank}_ms": latency.percentile(each * 1e3, rank) if len(each) >= latency.NEEDS[rank] else None
        for name, each in values.items()
        for rank in (50, 90, 99)
    }


def _warnings(whole: Recording, recording: Recording, mode: Realised, kinds: list[Kind], zero_s: float) -> list[str]:
    found = []
    if len(whole.servers) > 1:
        found.append(
            f"the folder holds recordings of {len(whole.servers)} configurations: this is the one recorded last"
        )
    if whole.cut:
        found.append(f"{', '.join(whole.cut)}: ends in the middle of a write, as after a crash; read up to there")
    if whole.lost_rows:
        found.append(f"{whole.lost_rows} steps are missing: the disk did not keep up")
    if recording.steps_left_out:
        found.append(
            f"the last {len(recording.steps):,} steps alone are looked at, {recording.steps_left_out:,} came before "
            "them: record.window picks a part"
        )
    if mode.unexplained_steps:
        found.append(
            f"{mode.unexplained_steps} of {sum(kind.steps for kind in kinds)} steps were dispatched otherwise than the "
            "rules for vLLM 0.21.0 say for any mode that this one can become"
        )
    if len(unfinished := recordings.unfinished_arrivals(recording)):
        first_s = unfinished[0] - zero_s
        found.append(
            f"{len(unfinished)} requests have a first token and no end, the first arrived at {first_s:.1f} s: cut off "
            "by the end of the recording, or given up by their clients"
        )
    return found
