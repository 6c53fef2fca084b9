"""A workload and a seed in, a Schedule out: fixed before a cell starts and the same for every arm of a block."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from artifact.errors import InputError
from artifact.records import Forced, Schedule
from artifact.schema import ServerConfig, TraceConfig, WorkloadConfig
from artifact.workloads import arrivals, lengths, traces

_FIRST_TOKEN = 100  # below: bytes and marks of some tokenisers
_LAST_TOKENS = 300  # the end of a vocabulary holds special and padding tokens: 256 in Llama 3, 293 in Qwen3


def build(workload: WorkloadConfig, seed: int, trace: TraceConfig | None = None) -> Schedule:
    """Return the schedule of ``workload``; ``trace`` is read where the arrival process is ``trace``.

    Arrivals, prompts, outputs and the order of bursts come from generators of their own: an equal seed gives the
    n-th request equal lengths whatever the arrivals. Measured are: in an open loop, intended arrivals in [warmup_s,
    duration_s - cooldown_s), where a trace without duration_s lasts until its last request, inclusive; in a closed
    loop, all but the first and the last ``concurrency`` requests; in bursts, all. A ``forced`` workload brings its
    own seed.

    Raises InputError, naming the key, where no request would be measured, and whatever ``traces.read`` raises.
    """
    if workload.arrival.process == "forced":
        return _forced(workload)
    arrive, prompt, output, order = (np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(4))
    arrival = workload.arrival
    group = None
    recorded = None
    if arrival.process == "trace":
        recorded = _recorded(workload, trace)
        times = recorded.arrival_s
    elif arrival.process == "bursts":
        group = arrivals.bursts(arrival.batches or (), arrival.repeats or 0, order)
        times = np.zeros(len(group))
    elif arrival.process == "closed":
        times = np.zeros(workload.requests or 0)
    else:
        times = arrivals.open_loop(arrival, workload.duration_s or 0.0, arrive)
    n = len(times)
    measured, offered_rate = _measured(workload, times)
    if recorded is not None:
        prompts, outputs = recorded.prompt_tokens[:n], recorded.output_tokens[:n]
    elif workload.prompt is not None and workload.output is not None:
        prompts, outputs = lengths.draw(workload.prompt, n, prompt), lengths.draw(workload.output, n, output)
    else:
        raise InputError(f"workload.prompt and workload.output: needed by arrival.process={arrival.process}")
    return Schedule(
        arrival_s=times,
        prompt_tokens=prompts,
        output_tokens=outputs,
        group=np.zeros(n, dtype=np.int64) if group is None else group,
        measured=measured,
        seed=seed,
        concurrency=arrival.concurrency,
        offered_rate=offered_rate,
    )


def _forced(workload: WorkloadConfig) -> Schedule:
    """Return every sequence once per batch shape, shape by shape; lengths and tokens depend on sequences_seed alone."""
    arrival, n, seed = workload.arrival, workload.requests, workload.sequences_seed
    if n is None or seed is None or arrival.gap_ms is None or workload.prompt is None or workload.output is None:
        raise InputError("workload: arrival.process=forced needs requests, sequences_seed, gap_ms, prompt, output")
    shapes = arrival.batches or ()
    if max(shapes, default=0) > n:
        raise InputError(
            f"workload.arrival.batches: {max(shapes)} at a time of workload.requests={n}; take at most {n}"
        )
    if len(set(shapes)) != len(shapes):
        raise InputError("workload.arrival.batches: each batch shape once, or scores could not be told apart")
    prompt, output = (np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2))
    sequence = np.tile(np.arange(n), len(shapes))
    shape = np.repeat(np.array(shapes, dtype=np.int64), n)
    starts = sequence % shape == 0  # of a group: the last one of a shape may be smaller
    return Schedule(
        arrival_s=sequence % shape * (arrival.gap_ms / 1e3),
        prompt_tokens=np.tile(lengths.draw(workload.prompt, n, prompt), len(shapes)),
        output_tokens=np.tile(lengths.draw(workload.output, n, output), len(shapes)),
        group=np.cumsum(starts) - 1,
        measured=np.ones(len(sequence), dtype=bool),
        seed=seed,
        forced=Forced(sequence, shape),
    )


def _recorded(workload: WorkloadConfig, trace: TraceConfig | None) -> traces.Trace:
    if trace is None:
        raise InputError("trace.path: workload=trace needs the trace's file, trace.path=FILE")
    recorded = traces.read(trace)
    return recorded if workload.duration_s is None else recorded.until(workload.duration_s)


def _measured(workload: WorkloadConfig, times: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.bool_], float | None]:
    """Return which requests count, and the rate at which those arrive (requests per second)."""
    process = workload.arrival.process
    if process == "bursts":
        return np.ones(len(times), dtype=bool), None
    if process == "closed":
        edge = workload.arrival.concurrency or 0
        if len(times) <= 2 * edge:
            raise InputError(
                f"workload.requests={len(times)}: the first and last {edge} (arrival.concurrency) are not measured; "
                f"take more than {2 * edge}"
            )
        position = np.arange(len(times))
        return (position >= edge) & (position < len(times) - edge), None
    last_s = float(times[-1]) if len(times) else 0.0
    end_s = (last_s if workload.duration_s is None else workload.duration_s) - workload.cooldown_s
    before_end = times <= end_s if workload.duration_s is None else times < end_s
    measured = (times >= workload.warmup_s) & before_end
    if not measured.any():
        raise InputError(
            f"workload: no request arrives in the measured window [{workload.warmup_s:g}, {end_s:g}) s; "
            "raise the rate or duration_s, or lower warmup_s and cooldown_s"
        )
    length_s = end_s - workload.warmup_s
    return measured, float(measured.sum() / length_s) if length_s > 0 else None


def fits(schedule: Schedule, server: ServerConfig) -> None:
    """Raise InputError unless every request's prompt and output fit into ``server.max_model_len`` tokens."""
    total = schedule.prompt_tokens + schedule.output_tokens
    longest = int(np.argmax(total))
    if total[longest] > server.max_model_len:
        raise InputError(
            f"workload: request {longest} takes {schedule.prompt_tokens[longest]} prompt and "
            f"{schedule.output_tokens[longest]} output tokens, more than server.max_model_len={server.max_model_len}; "
            "shorten workload.prompt or workload.output, or raise server.max_model_len; of a trace, "
            f"trace.max_tokens={server.max_model_len} leaves such requests out and counts them"
        )


def token_ids(schedule: Schedule, index: int, vocab_size: int) -> list[int]:
    """Return the prompt of request ``index``: random token ids that depend on the schedule's seed and on it alone.

    Of a forced schedule, on the request's sequence. The ids keep away from both ends of the vocabulary, where special
    tokens are. Raises InputError for a vocabulary too small for that.
    """
    which = index if schedule.forced is None else int(schedule.forced.sequence[index])
    return _random_ids([schedule.seed, which], int(schedule.prompt_tokens[index]), vocab_size)


def forced_ids(schedule: Schedule, index: int, vocab_size: int) -> list[int] | None:
    """Return the answer that request ``index`` is forced to give, drawn as ``token_ids``; None if it is free."""
    if schedule.forced is None:
        return None
    key = [schedule.seed, int(schedule.forced.sequence[index]), 1]  # one number more than the prompt's
    return _random_ids(key, int(schedule.output_tokens[index]), vocab_size)


def _random_ids(key: list[int], count: int, vocab_size: int) -> list[int]:
    end = vocab_size - _LAST_TOKENS
    if end <= _FIRST_TOKEN:
        raise InputError(f"model.architecture.vocab_size={vocab_size}: must be more than {_FIRST_TOKEN + _LAST_TOKENS}")
    return [int(token) for token in np.random.default_rng(key).integers(_FIRST_TOKEN, end, size=count)]


def prompt_buckets(schedules: Iterable[Schedule]) -> list[int]:
    """Return the prompt lengths to warm up with: the powers of two below the longest prompt, and that one itself."""
    longest = max((int(schedule.prompt_tokens.max()) for schedule in schedules if len(schedule)), default=0)
    return [2**power for power in range(longest.bit_length()) if 2**power < longest] + ([longest] if longest else [])
