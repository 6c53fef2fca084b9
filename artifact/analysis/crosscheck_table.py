"""A folder of studies in, the Markdown table of our latencies beside those of `vllm bench serve` out."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from artifact.analysis import fidelity
from artifact.analysis.markdown import markdown, said, shown
from artifact.study.store import read_launches

STUDY = "crosscheck"
FILE = "crosscheck.json"  # as benchmarks/crosscheck.py writes it
_METRICS = {"tpot_p50_ms": "TPOT p50, ms", "ttft_p50_ms": "TTFT p50, ms"}


def crosscheck_table(root: Path) -> str:
    """Return a row per mode and metric: every run of ours and of theirs, the ratio of medians, the means.

    Ours are simulated on a quiet host, too, which theirs may have had. Raises OSError where the benchmark's file is not
    beside the study's rows, InputError where those were not simulated.
    """
    folder = root / STUDY
    found: dict[str, Any] = json.loads((folder / FILE).read_text())
    simulated = fidelity.read(root)
    simulated = simulated[simulated["study"] == STUDY].sort_values("block")
    quiet = {mode: rows.to_dict("records") for mode, rows in simulated.groupby("arm")}
    rows = [
        [
            mode,
            words,
            _runs(of["ours"], name),
            _runs(of["vllm_bench"], name),
            f"{of['ratio'][name]:.2f}",
            _runs(quiet[mode], f"{name}{fidelity.QUIET}"),
            *_means(of, name),
        ]
        for mode, of in found["modes"].items()
        for name, words in _METRICS.items()
    ]
    header = [
        "mode",
        "metric",
        "ours, by launch",
        "`vllm bench serve`, by run",
        "ratio",
        "ours on a quiet host, simulated",
        "our mean",
        "their mean",
        "their server's mean",
        "their engine's mean",
    ]
    seconds = found["seconds"]
    words = (
        "Churn at 40 requests/s, Qwen3-0.6B; ratio of the medians, ours to theirs. Means are of all requests; an "
        "engine's TTFT is queue and prompt, without the server's frontend. The same cells took "
        f"{seconds['ours']:.0f} s here and {seconds['vllm_bench_sweep']:.0f} s there."
    )
    return f"{markdown(header, rows)}\n\n{said(read_launches(folder), words)}"


def _runs(runs: Sequence[Mapping[Any, Any]], name: str) -> str:
    return ", ".join(shown(run[name], ".2f") for run in runs)


def _means(of: dict[str, Any], name: str) -> list[str]:
    """Return the means of our launches, of their client, of their server and of the engine in it, by run."""
    mean = name.replace("_p50", "_mean")
    found = [_runs(of[who], mean) for who in ("ours", "vllm_bench", "vllm_serve")]
    return [*found, _runs(of["vllm_serve"], f"engine_{mean}") if "ttft" in mean else "-"]
