"""A status or a flag of the store in, what it means in plain words out."""

from artifact.schema import Status

STATUSES: dict[Status, str] = {
    Status.OK: "measured or simulated as planned; the only status that has latencies",
    Status.OOM: "out of memory: a result, not run again",
    Status.TIMEOUT: "took longer than its limit and was ended; tried again by the next run",
    Status.ENGINE_ERROR: "the engine broke or its records made no sense; tried again by the next run",
    Status.REFUSED: "vLLM refuses the configuration: a result, not run again",
    Status.DUPLICATE: "would realise the same mode as another arm: not run, and not ranked",
    Status.SKIPPED: "not reached, because its engine ended before; taken up by the next run",
}

# Raised in artifact/metrics: latency for the requests of a cell, validity for its steps and conditions; the last one
# in artifact/analysis/correctness.
FLAGS: dict[str, str] = {
    "client_bound": "the client fell behind: half of the requests were sent more than 10 ms late, or the rate achieved "
    "is more than 2 % off the rate offered. Its latencies are partly the client's.",
    "outputs_differ": "a request ended with another number of tokens than planned, so it is not the same work.",
    "failures": "at least one request did not finish as planned.",
    "under_sampled": "fewer than 100 requests: too few for a 99th percentile, which is left out.",
    "overload": "the queue grew while it was measured: time to first token depends on how long one waits, and is no "
    "property of the mode.",
    "heavy_probe": "every step was recorded inside the worker, which slows it: for step times, not for latencies.",
    "unsteady": "the number of running requests rose or fell over the measured window: not a steady state.",
    "host_jitter": "the host was disturbed just before the cell: it overslept a 1 ms sleep by more than 1 ms.",
    "wrong_outputs": "study=fallback found that this mode does not compute on its backend what NONE computes.",
}

UNKNOWN_FLAG = "a flag that this version does not know; see the version that wrote the rows."
