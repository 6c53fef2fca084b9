"""Whatever a row can be flagged with or end as has words on the page."""

from collections.abc import Iterator
from typing import Any

from artifact.analysis.correctness import WRONG_OUTPUTS
from artifact.metrics import latency, validity
from artifact.report import words
from artifact.schema import Status


def test_every_flag_and_status_has_words() -> None:
    def named(module: Any) -> Iterator[str]:
        yield from (line.split("|")[1].strip() for line in (module.__doc__ or "").splitlines() if line.startswith("| "))

    of_steps = set(named(validity)) - {"flag"}
    of_requests = {part for part in (latency._flags.__doc__ or "").split("``")[1::2] if part != "_overloaded"}
    assert set(words.FLAGS) == of_steps | of_requests | {WRONG_OUTPUTS}
    assert set(words.STATUSES) == set(Status)
