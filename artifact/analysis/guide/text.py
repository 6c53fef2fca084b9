"""What ``guide.gather`` returns in, the text of GUIDE.md out. The same rows give the same bytes."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from artifact.analysis.contrasts.inference import ALPHA, MARGIN
from artifact.analysis.contrasts.sweep import DEFAULT, MODES
from artifact.analysis.guide import fewer_sizes
from artifact.analysis.guide.answers import OTHERS, WORDS
from artifact.analysis.markdown import contrast

Guide = dict[str, Any]
_SHOWN = ("tpot_p50_ms", "ttft_p99_ms")


def render(guide: Guide) -> str:
    """Return GUIDE.md."""
    parts = [
        ["# Which CUDA graph mode to run", "", *_what(guide)],
        _section("The answer", _answer(guide)),
        _section("By workload", _by_workload(guide)),
        _section("What a mode takes", _costs(guide)),
        _section("When not to bother", _not_to_bother(guide)),
        _section("Flags to paste", _flags(guide)),
        _section("Capture fewer sizes", fewer_sizes.text(guide["fewer_sizes"])),
        _section("Slow and fast hosts", _hosts(guide)),
        _section("Questions", _questions(guide)),
        _section("What each mode sustains", _rates(guide)),
        _section("How it was decided, and its limits", _limits(guide)),
        _section("Every contrast", _contrasts(guide)),
    ]
    return "\n".join(line for part in parts for line in part).rstrip() + "\n"


def _section(title: str, lines: Iterable[str]) -> list[str]:
    return ["", f"## {title}", "", *lines]


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]
    return lines if len(lines) > 2 else ["Not measured yet."]


def _number(value: float | None, form: str) -> str:
    return "unknown" if value is None else form.format(value)


def _what(guide: Guide) -> list[str]:
    gpus = ", ".join(guide["gpus"]) or "GPU unknown"
    return [
        f"{guide['evidence'].capitalize()} on {gpus} with vLLM 0.21.0, {' and '.join(guide['models'])}, "
        f"{guide['launches']} engine starts. Written by `artifact guide`; with `--json` it gives every number in full.",
        "",
        f"The default is vLLM's own, {DEFAULT}. A *load* is a share of the rate that the default sustains. *Steady*, "
        "*churn* and *bursty* have equal rates and mean lengths, and differ in how arrivals and lengths vary. A ratio "
        "is a mode's latency over the default's in the same block: below 1 is faster. n counts blocks.",
    ]


def _answer(guide: Guide) -> list[str]:
    lines = []
    for model, sentences in guide["answer"].items():
        lines += [f"**{model}**: {' '.join(sentences)}", ""]
    lacking = [each for each in guide["tiles"] if each["blocks"] < each["needed"]]
    if lacking:
        counts = ", ".join(f"{each['tile']} {each['blocks']} of {each['needed']}" for each in lacking)
        lines.append(f"Tiles that lack blocks, those with every mode of those needed: {counts}.")
    return lines


def _by_workload(guide: Guide) -> list[str]:
    rows = []
    for each in guide["workloads"]:
        best = [each["best"][metric] for metric in _SHOWN]
        cells = [f"{row['mode']} {contrast(row)}" if row else "not measured" for row in best]
        rows.append([each["model"], each["words"], each["advice"], *cells])
    shown = [f"best other mode, {WORDS[metric]} over the default's" for metric in _SHOWN]
    return [*_table(["model", "workload", "what to do", *shown], rows), *_confirmed(guide["confirmed"])]


def _confirmed(found: Guide | None) -> list[str]:
    """Return the trace that study=confirm served, and its contrasts."""
    if found is None:
        return []
    rows = found["contrasts"]
    few = [row for row in rows if row["exploratory"]]
    standing = f" Exploratory, {few[0]['blocks']} of {few[0]['blocks_needed']} blocks." if few else ""
    first = f"On a trace ({rows[0]['model']}, `artifact run study=confirm`; {found['trace']}), over the default's."
    return [
        "",
        first + standing,
        "",
        *(f"- {row['mode']}, {WORDS[row['metric']]}: {contrast(row)}" for row in rows),
    ]


def _costs(guide: Guide) -> list[str]:
    header = ["model", "mode", "graph memory", "KV tokens it would hold", "capture", "start-up, warm cache", "starts"]
    rows = [
        [
            cost["model"],
            cost["mode"],
            _number(cost["graph_mib"], "{:.0f} MiB"),
            _number(cost["kv_tokens_lost"], "{:,}"),
            _number(cost["capture_s"], "{:.1f} s"),
            _number(cost["warm_start_s"], "{:.0f} s"),
            str(cost["launches"]),
        ]
        for cost in guide["costs"]
    ]
    return [*_table(header, rows), "", "Medians over starts of the study's server; start-up is without importing vLLM."]


def _not_to_bother(guide: Guide) -> list[str]:
    known = [each for each in guide["regret"] if each["metric"] == _SHOWN[0] and each["high"] is not None]
    words = {
        tuple(each[key] for key in ("model", "tile", "workload", "level")): each["words"] for each in guide["workloads"]
    }
    known = [each for each in known if tuple(each["place"]) in words]
    if not known:
        return ["The data cannot tell yet: no workload has the blocks that an interval takes."]
    small = [each for each in known if each["high"] <= MARGIN]
    lines = []
    for each in small:
        name = words[tuple(each["place"])]
        lines.append(
            f"- {name}: the best mode gains at most {100 * each['high']:.1f} % (TPOT p50, 95 %): keep the default."
        )
    if not small:
        lines.append("At no workload is it sure yet that the best mode gains less than 2 % of TPOT p50 on the default.")
    least = min(known, key=lambda each: each["high"])
    if not small:
        lines.append(
            f"Nearest to it: {words[tuple(least['place'])]}, where it gains {100 * least['regret']:.1f} % "
            f"({100 * least['low']:.1f} to {100 * least['high']:.1f} %)."
        )
    return lines


def _flags(guide: Guide) -> list[str]:
    lines = ["```"]
    lines += [f"vllm serve MODEL {flag}" for flag in guide["flags"].values()]
    return [
        *lines,
        "```",
        "",
        f"{DEFAULT} is what vLLM runs without a flag. `artifact recommend` answers for your own load or trace.",
    ]


def _hosts(guide: Guide) -> list[str]:
    cost = guide["launch_cost"]
    lines = []
    for name, words in (("graph_launch_us", "graph"), ("eager_launch_us", "kernel")):
        if probe := cost["probes"].get(name):
            took = f"{probe['min']:.1f} to {probe['max']:.1f} us (median {probe['median']:.1f})"
            lines.append(f"- Launching a {words} took {took} before {probe['starts']} starts, {guide['evidence']}.")
    paces = ", ".join(f"{name} {pace:.2f}" for name, pace in cost["slow_host"].items())
    lines.append(
        f"- The host has a quiet and a slow state; host time of a step in the slow one, fitted on steps: {paces} times."
    )
    if not cost["simulated"]:
        return lines
    rows = []
    for each in cost["simulated"]:
        low, high = each["interval"]
        ends = "unknown" if low is None else f"{100 * each['margin']:+.0f} % [{100 * low:+.0f}, {100 * high:+.0f}]"
        against = f"{ends} on {each['margin_against']}"
        rows.append([f"{each['load']:g}", f"{each['launch_us']:g} us", each["recommended"], against,
                     ", ".join(each["inconclusive"]) or "none"])  # fmt: skip
    header = ["load", "graph launch", "recommended", "its TPOT p50 is lower by", "cannot be told from it"]
    return [
        *lines,
        "",
        "**Simulated** (qwen3-0.6b, churn; one short run a mode, so a sketch; intervals hold the calibration's error):",
        "",
        *_table(header, rows),
    ]


def _questions(guide: Guide) -> list[str]:
    lines = []
    for question in dict.fromkeys(each["question"] for each in guide["questions"]):
        lines += [f"**{question}**", ""]
        lines += [f"- {each['model']}: {each['answer']}" for each in guide["questions"] if each["question"] == question]
        lines.append("")
    return lines[:-1]


def _rates(guide: Guide) -> list[str]:
    same: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for each in guide["rates"]:
        until = "the highest measured" if each["fails_at"] is None else f"not {each['fails_at']}"
        same.setdefault((each["tile"], each["level"] or "not even the lowest", until), []).append(each)
    rows = []
    for (tile, level, until), modes in same.items():
        known = [each["rate_per_s"] for each in modes if each["rate_per_s"] is not None]
        rate = f" ({sum(known) / len(known):.1f} requests/s)" if known else ""
        rows.append([tile, ", ".join(each["mode"] for each in modes), f"{level}{rate}", until])
    lines = [
        "The highest load, or rate, at which the queue does not grow within the cell, in half of the blocks or more:",
        "",
        *_table(["tile", "modes", "sustain", ""], rows),
        "",
        "Output tokens per second with 256 in flight:",
        "",
    ]
    capacity = [
        [each["model"], each["mode"], f"{each['tokens_per_s']:,.0f}", _capacity(each), str(each["blocks"])]
        for each in guide["capacity"]
    ]
    lines += _table(["model", "mode", "tokens/s", "over the default's", "n"], capacity)
    if guide["normalised_latency"]:
        lines += ["", "ShareGPT's lengths, end-to-end time over output tokens (mean, ms; median over blocks):", ""]
        lines += _by_mode(guide["normalised_latency"])
    return lines


def _capacity(each: dict[str, Any]) -> str:
    if each["ratio"] is None:
        return "1" if each["mode"] == DEFAULT else "no block with the default"
    ends = "" if each["interval"] is None else f" [{each['interval'][0]:.2f}, {each['interval'][1]:.2f}]"
    return f"{each['ratio']:.2f}{ends}"


def _by_mode(rows: Sequence[dict[str, Any]]) -> list[str]:
    levels = dict.fromkeys(each["words"] for each in rows)
    table = []
    for words in levels:
        of_level = {each["mode"]: each for each in rows if each["words"] == words}
        cells = [f"{of_level[mode]['normalised_ms']:.2f}" if mode in of_level else "not measured" for mode in MODES]
        table.append([words, *cells, str(min(each["blocks"] for each in of_level.values()))])
    return _table(["rate", *MODES, "blocks"], table)


def _limits(guide: Guide) -> list[str]:
    floor = [
        f"- Noise floor of {each['model']}: two launches of the default in one block differ by "
        f"{100 * math.expm1(each['sd']):.0f} % of TPOT p50 (root mean square of {each['cells']} cells in "
        f"{each['blocks']} blocks), at most {each['largest']:.2f} times. Eight blocks then see differences of "
        f"{100 * each['seen_with'][8]:.0f} %."
        for each in guide["noise"]
        if each["metric"] == _SHOWN[0]
    ]
    return [
        "- Unit: the engine launch. A block is every mode once, in random order, on one machine and GPU, serving the "
        "same requests; ratios are within blocks, means over blocks.",
        f"- Verdicts: paired t with the spread pooled over a mode's loads and tiles, Holm at {ALPHA:g} over a tile and "
        f"metric, equivalence by two one-sided tests at {100 * MARGIN:.0f} %. Brackets are the 95 % interval of one "
        "contrast alone.",
        "- Under 8 blocks, 5 for models of 10 GB or more, a verdict is exploratory; under 3 there is none.",
        "- Cells that are flagged, above saturation or not in the mode asked for are shown and not ranked.",
        *(floor or ["- Noise floor: not measured yet (`study=load_sweep_aa`)."]),
        "- One GPU, one vLLM version, dummy weights, random prompts without prefix hits, FLASH_ATTN, no speculation, "
        "no LoRA. What a mode gains moves with the host: see slow and fast hosts.",
    ]


def _contrasts(guide: Guide) -> list[str]:
    words = {
        tuple(each[key] for key in ("model", "tile", "workload", "level")): each["words"] for each in guide["workloads"]
    }
    lines = []
    for metric, name in WORDS.items():
        of_metric: dict[tuple[str, ...], dict[str, Any]] = {}
        for row in guide["contrasts"]:
            if row["metric"] == metric:
                key = tuple(row[each] for each in ("model", "tile", "workload", "level"))
                of_metric.setdefault(key, {})[row["mode"]] = row
        table = [
            [key[0], words.get(key, key[2]), *(contrast(by_mode.get(mode)) for mode in OTHERS)]
            for key, by_mode in of_metric.items()
        ]
        lines += [f"{name} over the default's:", "", *_table(["model", "workload", *OTHERS], table), ""]
    return lines[:-1]
