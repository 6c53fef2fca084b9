"""Overrides of a small study, and what an engine that keeps up gives for each of its cells: for tests of runs."""

import numpy as np
import pandas as pd

from artifact.records import REQUEST_COLUMNS, STEP_COLUMNS, Conditions, Measurement, Schedule, typed

CONDITIONS = Conditions(cpu_jitter_us=7.0, launch_us_before=7.5, launch_us_after=9.0)
OVERRIDES = ("workload.duration_s=4", "tracking=off", "study.name=resume")


def served(schedule: Schedule) -> Measurement:
    """What an engine gives that answers every request after 10 ms with a token every 2 ms."""
    count = len(schedule)
    first = schedule.arrival_s + 0.010
    requests = pd.DataFrame(
        {
            "request": np.arange(count),
            "intended_s": schedule.arrival_s,
            "sent_s": schedule.arrival_s,
            "first_token_s": first,
            "last_token_s": first + (schedule.output_tokens - 1) * 0.002,
            "prompt_tokens": schedule.prompt_tokens,
            "planned_output_tokens": schedule.output_tokens,
            "output_tokens": schedule.output_tokens,
            "measured": schedule.measured,
        }
    )
    steps = pd.DataFrame({"step": [0, 1], "t_s": [2.0, 2.5], "runtime_mode": ["FULL", "NONE"], "num_tokens": [8, 9],
                          "padded_tokens": [8, 9], "num_running": [8, 9]})  # fmt: skip
    return Measurement(typed(requests, REQUEST_COLUMNS), typed(steps, STEP_COLUMNS), 4.0, CONDITIONS)
