"""A GPU in; TPOT and TTFT of the same workload and flags by `vllm bench sweep serve` and by this artifact out.

    python benchmarks/crosscheck.py OUT_FOLDER

Two modes are served by `vllm serve`, driven by `vllm bench serve` (Poisson, uniform lengths: the workload churn),
and measured as study=crosscheck. Both are cut to requests that arrive in the same window. Writes crosscheck.json:
medians of both and their ratio per mode, the wall-clock seconds of both and the requests measured in them. Between the
server's engine and the client of `vllm bench` lie HTTP and two more processes: what the server's own metrics say of the
same runs, and of the engine in it, stands beside. The client gets two cores and the server the others, as ours have
them. Five to seven minutes.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from serving import ADDRESS, VLLM, serve_command
from tokenizers import Tokenizer, models, pre_tokenizers

from artifact.config import load
from artifact.metrics.latency import per_request
from artifact.schema import Config, LengthConfig
from artifact.study.store import read_cells, read_launches, read_requests

MODES = ("piecewise", "full_and_piecewise")
RUNS = 2
PORT = 8011


def write_tokenizer(folder: Path, vocabulary: int) -> None:
    """Write a tokenizer of one word a token beside config.json: `vllm bench` sends text, and n words are n tokens."""
    words = {f"t{number}": number for number in range(vocabulary)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="t0"))  # noqa: S106
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "t0", "clean_up_tokenization_spaces": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def ratio_of(length: LengthConfig) -> tuple[str, float]:
    """Return mean and range ratio of a uniform length, as `vllm bench` takes them."""
    return str(int(length.mean)), float((length.high or length.mean) / length.mean - 1)


def bench_command(config: Config, model: str) -> list[str]:
    """Return `vllm bench serve` for the workload of ``config``, as many requests as its rate gives in its duration."""
    workload = config.workload
    assert workload.prompt is not None and workload.output is not None  # noqa: S101, PT018
    rate, seconds = workload.arrival.rate_per_s or 0.0, workload.duration_s or 0.0
    (prompt, share), (output, same) = ratio_of(workload.prompt), ratio_of(workload.output)
    if share != same:
        sys.exit("vllm bench takes one range ratio for prompts and outputs")
    command = [*VLLM, "bench", "serve", "--backend", "openai", "--base-url", f"http://{ADDRESS}:{PORT}"]
    command += [
        "--model",
        model,
        "--dataset-name",
        "random",
        "--random-input-len",
        prompt,
        "--random-output-len",
        output,
    ]
    command += [
        "--random-range-ratio",
        str(share),
        "--request-rate",
        str(rate),
        "--num-prompts",
        str(int(rate * seconds)),
    ]
    return [*command, "--ignore-eos", "--temperature", "0", "--save-detailed", "--num-warmups", "32", "--disable-tqdm"]


def theirs(file: Path, config: Config) -> list[dict[str, float]]:
    """Return TTFT and TPOT (ms) of each run in ``file``: p50 and n of our window's arrivals, means of all requests."""
    workload, rows = config.workload, []
    for run in json.loads(file.read_text()):
        if any(run["errors"]):
            sys.exit(f"{file}: a request failed: {next(filter(None, run['errors']))}")
        start = np.array(run["start_times"]) - min(run["start_times"])
        inside = (start >= workload.warmup_s) & (start < (workload.duration_s or 0) - workload.cooldown_s)
        tpot = np.array(
            [sum(gaps) / max(1, tokens - 1) for gaps, tokens in zip(run["itls"], run["output_lens"], strict=True)]
        )
        ttft = np.array(run["ttfts"])
        rows.append(
            {
                "ttft_p50_ms": float(np.median(ttft[inside]) * 1e3),
                "tpot_p50_ms": float(np.median(tpot[inside]) * 1e3),
                "ttft_mean_ms": float(run["mean_ttft_ms"]),
                "tpot_mean_ms": float(run["mean_tpot_ms"]),
                "n": int(inside.sum()),
            }
        )
    return rows


def on_cores(cores: list[int], command: list[str]) -> list[str]:
    """Return ``command`` kept to ``cores``: an engine that shares its core with a client is a slow engine."""
    return ["taskset", "-c", ",".join(map(str, cores)), *command]


def scrape(out: Path) -> str:
    """Return the command by which the sweep keeps a run's metrics of the server: metrics-NANOSECONDS in ``out``."""
    code = (
        "import time, urllib.request as u; "
        f"open('{out}/metrics-%d' % time.time_ns(), 'wb').write(u.urlopen('http://{ADDRESS}:{PORT}/metrics').read())"
    )
    return f'{sys.executable} -c "{code}"'


def engine_means_ms(files: list[Path]) -> list[dict[str, float]]:
    """Return the means that the server counted up to each of ``files``, less those of the one before.

    TTFT and TPOT are of the whole server; ``engine_ttft`` is what of TTFT passed in the engine alone, which queued and
    ran the prompt. What lies between the two is the server's frontend. The first file holds the warm-up, too.
    """
    names = {
        "ttft": "time_to_first_token_seconds",
        "tpot": "request_time_per_output_token_seconds",
        "queue": "request_queue_time_seconds",
        "prefill": "request_prefill_time_seconds",
    }
    before, rows = dict.fromkeys(names, (0.0, 0.0)), []
    for file in files:
        text = file.read_text()
        now = {
            name: tuple(
                sum(map(float, re.findall(rf"^vllm:{metric}_{part}{{.*}} (.+)$", text, re.M)))
                for part in ("sum", "count")
            )
            for name, metric in names.items()
        }
        mean = {name: 1e3 * (now[name][0] - before[name][0]) / (now[name][1] - before[name][1]) for name in names}
        in_engine = mean.pop("queue") + mean.pop("prefill")
        rows.append({f"{name}_mean_ms": value for name, value in mean.items()} | {"engine_ttft_mean_ms": in_engine})
        before = now
    return rows


def ours(folder: Path, mode: str) -> list[dict[str, Any]]:
    """Return TTFT and TPOT (ms) of each launch of ``mode``: p50 and n of the window's arrivals, means of all requests.

    ``folder`` holds the rows of study=crosscheck.
    """
    cells = read_cells(folder)
    rows = cells[cells["arm"] == mode][["cell_id", "block", "tpot_p50_ms", "ttft_p50_ms", "n_requests"]]
    found = []
    for row in rows.to_dict("records"):
        every = per_request(read_requests(folder, [row.pop("cell_id")]).assign(measured=True))
        means = {f"{what}_mean_ms": float(every[f"{what}_s"].mean() * 1e3) for what in ("ttft", "tpot")}
        found.append({str(name): value for name, value in row.items()} | means)
    return found


def timed(command: list[str], log: Path) -> float:
    """Run ``command`` to its end and return its seconds; what it prints goes to ``log``."""
    begin = time.monotonic()
    with log.open("w") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        try:
            code = process.wait()
        except BaseException:
            process.send_signal(signal.SIGINT)  # the sweep then ends its server, which is in a session of its own
            raise
    if code:
        sys.exit(f"{' '.join(command)}\nended with {code}:\n{log.read_text()[-2000:]}")
    return time.monotonic() - begin


def compared(out: Path, config: Config, seconds: dict[str, float]) -> dict[str, Any]:
    """Return what crosscheck.json holds of the runs in ``out``."""
    folder = out / "results" / "crosscheck"
    # The modes are served one after the other, each by a server of its own.
    metrics = sorted(out.glob("metrics-*"))
    gpu = read_launches(folder)["gpu_name"].iloc[0]
    answer: dict[str, Any] = {"seconds": seconds, "gpu": gpu, "modes": {}}
    for place, mode in enumerate(name.upper() for name in MODES):
        mine = ours(folder, mode)
        [file] = [path for path in out.glob("sweep/**/summary.json") if _mode_of(path) == mode]
        bench = theirs(file, config)
        answer["modes"][mode] = {
            "ours": mine,
            "vllm_bench": bench,
            "vllm_serve": engine_means_ms(metrics[place * RUNS : (place + 1) * RUNS]),
            "ratio": {
                name: float(np.median([row[name] for row in mine]) / np.median([row[name] for row in bench]))
                for name in ("tpot_p50_ms", "ttft_p50_ms")
            },
        }
    return answer


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    out = Path(sys.argv[1]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    config = load(["study=crosscheck", "model=qwen3-0.6b", "server=study", "workload=churn"])
    command = [*serve_command(config, PORT, {}), "--no-enable-log-requests"]  # the sweep sets the mode
    model = command[command.index("serve") + 1]
    write_tokenizer(Path(model), int(str(config.model.architecture["vocab_size"])))
    parameters = out / "modes.json"
    parameters.write_text(json.dumps([{"compilation_config": {"cudagraph_mode": mode.upper()}} for mode in MODES]))
    study = [sys.executable, "-m", "artifact", "run", "study=crosscheck", "engine=vllm", "tracking=off"]
    cores = sorted(os.sched_getaffinity(0))
    served, driven = on_cores(cores[2:], command), on_cores(cores[:2], bench_command(config, model))
    sweep = [*VLLM, "bench", "sweep", "serve", "--serve-cmd", shlex.join(served)]
    sweep += ["--bench-cmd", shlex.join(driven), "--serve-params", str(parameters)]
    sweep += ["--num-runs", str(RUNS), "--after-bench-cmd", scrape(out), "--show-stdout", "-o", str(out), "-e", "sweep"]
    seconds = {"ours": timed([*study, f"executor.results={out}/results"], out / "ours.log")}
    seconds["vllm_bench_sweep"] = timed(sweep, out / "sweep.log")
    answer = compared(out, config, seconds)
    (out / "crosscheck.json").write_text(json.dumps(answer, indent=1) + "\n")
    print(json.dumps(answer, indent=1))


def _mode_of(summary: Path) -> str:
    return str(json.loads(summary.read_text())[0]["compilation_config"]["cudagraph_mode"])


if __name__ == "__main__":
    main()
