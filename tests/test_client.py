"""The load generator: what it sends when, and what it records."""

import asyncio
import time
from collections.abc import AsyncIterator

import numpy as np
import pytest

from artifact.engines.client import drive
from artifact.errors import CellFailed
from artifact.records import REQUEST_COLUMNS, Schedule


def schedule(arrival_s, output_tokens, group=None, concurrency=None) -> Schedule:
    count = len(arrival_s)
    return Schedule(
        arrival_s=np.array(arrival_s, dtype=float),
        prompt_tokens=np.full(count, 8),
        output_tokens=np.array(output_tokens),
        group=np.array(group if group is not None else [0] * count),
        measured=np.ones(count, dtype=bool),
        seed=0,
        concurrency=concurrency,
    )


class Server:
    """Answers after ``first_s``, a token every ``gap_s``; keeps when each request came and how many ran at once."""

    def __init__(self, plan: Schedule, first_s=0.02, gap_s=0.01, broken=()) -> None:
        self.plan, self.first_s, self.gap_s, self.broken = plan, first_s, gap_s, broken
        self.running = self.most = 0
        self.log: list[tuple[str, int]] = []

    async def __call__(self, index: int) -> AsyncIterator[int]:
        self.log.append(("start", index))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self.first_s)
            if index in self.broken:
                raise ConnectionResetError("gone\nmore")
            for token in range(int(self.plan.output_tokens[index])):
                if token:
                    await asyncio.sleep(self.gap_s)
                yield 1
        finally:
            self.running -= 1
            self.log.append(("end", index))


def run(plan: Schedule, server: Server, limit_s=10.0):
    return asyncio.run(drive(plan, server, time.perf_counter(), limit_s))


def test_open_loop_times_from_the_intended_arrival() -> None:
    plan = schedule([0.0, 0.05, 0.05], [3, 1, 2])
    rows = run(plan, Server(plan))
    assert list(rows.columns) == list(REQUEST_COLUMNS)
    assert rows["request"].tolist() == [0, 1, 2]
    assert np.allclose(np.diff(rows["intended_s"]), [0.05, 0.0], atol=1e-9)
    assert (rows["sent_s"] >= rows["intended_s"]).all()
    assert (rows["first_token_s"] - rows["sent_s"] >= 0.019).all()
    assert rows["output_tokens"].tolist() == [3, 1, 2]
    assert rows["failure"].isna().all()
    assert rows.loc[1, "first_token_s"] == rows.loc[1, "last_token_s"]


def test_groups_wait_for_each_other() -> None:
    plan = schedule([0, 0, 0], [2, 4, 1], group=[0, 0, 1])
    server = Server(plan)
    run(plan, server)
    assert server.log.index(("start", 2)) > server.log.index(("end", 1))
    assert server.log.index(("start", 1)) < server.log.index(("end", 0))


def test_closed_loop_never_exceeds_its_concurrency() -> None:
    plan = schedule([0] * 7, [2] * 7, concurrency=3)
    server = Server(plan)
    rows = run(plan, server)
    assert server.most == 3
    assert len(rows) == 7
    assert (rows["intended_s"].sort_values().iloc[3:] > 0.02).all()  # a seat had to come free first


def test_a_failed_request_is_a_row_with_its_reason() -> None:
    plan = schedule([0, 0], [2, 2])
    rows = run(plan, Server(plan, broken={1}))
    assert rows["failure"].isna().tolist() == [True, False]
    assert rows.loc[1, "failure"] == "ConnectionResetError: gone"
    assert np.isnan(rows.loc[1, "first_token_s"])


def test_fewer_tokens_than_planned_is_a_failure() -> None:
    plan = schedule([0], [5])
    short = schedule([0], [3])
    rows = run(plan, Server(short))
    assert rows.loc[0, "failure"] == "3 output tokens, planned 5"


def test_the_limit_ends_the_cell_with_a_count() -> None:
    plan = schedule([0, 0], [1, 500])
    server = Server(plan)
    with pytest.raises(CellFailed, match=r"1 of 2 requests finished in 0\.2 s") as caught:
        run(plan, server, limit_s=0.2)
    assert caught.value.status == "timeout"
    assert server.running == 0
