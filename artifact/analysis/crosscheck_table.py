"""A folder of studies in, the Markdown table of our latencies beside those of `vllm bench serve` out."""

import json
from pathlib import Path
from typing import Any

from artifact.analysis.markdown import markdown, said, shown
from artifact.study.store import read_launches

STUDY = "crosscheck"
FILE = "crosscheck.json"  # as benchmarks/crosscheck.py writes it
_METRICS = {"tpot_p50_ms": "TPOT p50, ms", "ttft_p50_ms": "TTFT p50, ms"}


def crosscheck_table(root: Path) -> str:
    """Return a row per mode and metric: every run of ours and of theirs, the ratio of medians, their engine's mean.

    Raises OSError where the benchmark's file is not beside the study's rows.
    """
    folder = root / STUDY
    found: dict[str, Any] = json.loads((folder / FILE).read_text())
    rows = [
        [
            mode,
            words,
            _runs(of["ours"], name),
            _runs(of["vllm_bench"], name),
            f"{of['ratio'][name]:.2f}",
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
        "their mean",
        "their server's mean",
    ]
    words = "Churn at 40 requests/s, Qwen3-0.6B; ratio of the medians, ours to theirs. Means are of all requests."
    if seconds := found.get("seconds"):
        words += f" The same cells took {seconds['ours']:.0f} s here and {seconds['vllm_bench_sweep']:.0f} s there."
    if note := found.get("note"):
        words += f" {note}"
    return f"{markdown(header, rows)}\n\n{said(read_launches(folder), words)}"


def _runs(runs: list[dict[str, float]], name: str) -> str:
    return ", ".join(shown(run[name], ".2f") for run in runs)


def _means(of: dict[str, Any], name: str) -> list[str]:
    """Return the client's and the server's own means of the metric over the runs; a dash where none was kept."""
    mean = name.replace("_p50", "_mean")
    return [_runs(of.get(who) or [], mean) or "-" for who in ("vllm_bench", "vllm_serve")]
