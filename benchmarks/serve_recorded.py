"""A GPU in; a short recording of a live `vllm serve` and how well it tells what was sent, out.

    python benchmarks/serve_recorded.py OUT_FOLDER [KEY=VALUE ...]

Starts `vllm serve` with dummy weights on 127.0.0.1 with the recorder plugin, sends the configured workload (churn at
20 requests a second for 30 s unless overridden) as token ids to /v1/completions, stops the server and inspects
OUT_FOLDER/recording. Where the package is not installed with its entry points (a checkout on PYTHONPATH), a wheel is
built beside the recording for the server to find. Writes serve.log, inspect.json and check.json; exit code 1 where the
recording does not hold what was sent. Needs the packages of requirements/gpu.txt alone.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
from serving import ADDRESS, serve_command

from artifact.analysis.inspect_server import inspect_server
from artifact.config import load
from artifact.records import Schedule
from artifact.schema import Config
from artifact.workloads.build import build, token_ids
from artifact.workloads.traces import read

ROOT = Path(__file__).resolve().parents[1]
PORT = 8013
LOAD = ("workload=churn", "workload.arrival.rate_per_s=20.0", "workload.duration_s=30.0")
START_LIMIT_S, STOP_LIMIT_S = 540.0, 60.0
# The plugin needs --cudagraph-metrics.
FLAGS = ("--served-model-name", "model", "--cudagraph-metrics", "--skip-tokenizer-init", "--generation-config", "vllm")


def plugin_path(out: Path) -> str:
    """Return a folder for PYTHONPATH in which the plugin's entry point is found; empty where it is found already."""
    if any(point.name == "artifact_recorder" for point in entry_points(group="vllm.stat_logger_plugins")):
        return ""
    copy, site = out / "source", out / "site"
    for name in ("artifact", "conf"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    code = f"import setuptools.build_meta as build; build.build_wheel({str(out.resolve())!r})"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=copy, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return str(site.resolve())


def started(config: Config, out: Path) -> "subprocess.Popen[bytes]":
    """Return the server's process, its plugin recording to ``out``/recording."""
    path = [part for part in (plugin_path(out), os.environ.get("PYTHONPATH", "")) if part]
    environment = {
        **os.environ,
        "ARTIFACT_RECORD": str((out / "recording").resolve()),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_USE_FLASHINFER_SAMPLER": "0",
        "PYTHONPATH": os.pathsep.join(path),
    }
    with (out / "serve.log").open("wb") as log:
        return subprocess.Popen(
            [*serve_command(config, PORT), *FLAGS], env=environment, stdout=log, stderr=log, start_new_session=True
        )


async def until_healthy(session: aiohttp.ClientSession, process: "subprocess.Popen[bytes]") -> None:
    """Wait for the server. Raises RuntimeError where it ends or takes too long."""
    end = time.monotonic() + START_LIMIT_S
    while process.poll() is None and time.monotonic() < end:
        try:
            async with session.get("/health") as answer:
                if answer.status == 200:
                    return
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(1)
    raise RuntimeError(f"vllm serve did not start (exit code {process.poll()}); see serve.log")


async def send(session: aiohttp.ClientSession, ids: list[int], tokens: int, at_s: float) -> tuple[float, int, float]:
    """Send one request at ``at_s`` on the loop's clock; return wall time sent, output tokens and seconds it took."""
    await asyncio.sleep(at_s - asyncio.get_running_loop().time())
    body = {"model": "model", "prompt": ids, "max_tokens": tokens, "ignore_eos": True, "temperature": 0}
    sent_s, begin = time.time(), time.perf_counter()
    async with session.post("/v1/completions", json=body) as answer:
        content = await answer.json()
        if answer.status != 200:
            raise RuntimeError(f"/v1/completions answered {answer.status}: {content}")
    return sent_s, int(content["usage"]["completion_tokens"]), time.perf_counter() - begin


async def drive(
    process: "subprocess.Popen[bytes]", schedule: Schedule, vocabulary: int
) -> list[tuple[float, int, float]]:
    """Serve ``schedule`` in an open loop; return what ``send`` does, in its order."""
    limits = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(f"http://{ADDRESS}:{PORT}", connector=limits, timeout=timeout) as session:
        await until_healthy(session, process)
        prompts = [token_ids(schedule, index, vocabulary) for index in range(len(schedule))]
        start = asyncio.get_running_loop().time() + 0.5
        return await asyncio.gather(
            *(
                send(session, ids, int(tokens), start + float(at_s))
                for ids, tokens, at_s in zip(prompts, schedule.output_tokens, schedule.arrival_s, strict=True)
            )
        )


def stop(process: "subprocess.Popen[bytes]") -> int:
    """End the server by its process id, in order and then by force; return its exit code."""
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its own session: the server and its engine, nothing else
        return process.wait()


def check(
    schedule: Schedule, sent: list[tuple[float, int, float]], folder: Path, answer: dict[str, Any]
) -> dict[str, Any]:
    """Return what was sent beside what was recorded; ``ok`` where the requests are the same."""
    trace = read(load([f"trace.path='{folder}'", "trace.format=recording"]).trace)
    sent_s = np.array([at for at, _, _ in sent])
    same = len(trace) == len(sent)
    order = np.argsort(sent_s, kind="stable")
    late_ms = (trace.arrival_s - (sent_s[order] - sent_s.min())) * 1e3 if same else np.array([np.nan])
    lengths = zip(trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True)
    wanted = zip(schedule.prompt_tokens.tolist(), [tokens for _, tokens, _ in sent], strict=True)
    return {
        "ok": same and sorted(lengths) == sorted(wanted) and answer["dispatch"] is not None,
        "sent": len(sent),
        "recorded": len(trace),
        "dropped": trace.dropped_count,
        "output_tokens_as_planned": [tokens for _, tokens, _ in sent] == schedule.output_tokens.tolist(),
        "arrival_less_sent_ms": {f"p{rank}": float(np.percentile(late_ms, rank)) for rank in (1, 50, 99)},
        "client_e2e_p50_ms": float(np.median([took for _, _, took in sent]) * 1e3),
        "server_e2e_p50_ms": answer["latency"]["e2e_p50_ms"],
        "recording_bytes": sum(file.stat().st_size for file in folder.iterdir()),
    }


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # the server is stopped then, too
    out = Path(sys.argv[1])
    out.mkdir(parents=True)
    config = load(["engine=vllm", *LOAD, *sys.argv[2:]])
    schedule = build(config.workload, 1, config.trace)
    process = started(config, out)
    try:
        sent = asyncio.run(drive(process, schedule, int(str(config.model.architecture["vocab_size"]))))
    finally:
        code = stop(process)
    folder = out / "recording"
    answer = inspect_server(load([f"record.path='{folder}'"]))
    checked = check(schedule, sent, folder, answer) | {"serve_exit_code": code}
    (out / "inspect.json").write_text(json.dumps(answer, indent=1))
    (out / "check.json").write_text(json.dumps(checked, indent=1))
    print(json.dumps(checked, indent=1))
    return 0 if checked["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
