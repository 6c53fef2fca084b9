"""The contract of an engine: a launch in; its facts, and a measurement per schedule, out."""

from typing import Protocol

from artifact.records import Launch, LaunchFacts, Measurement, Schedule
from artifact.schema import Evidence


class Engine(Protocol):
    """One engine start. ``start`` once, ``measure`` any number of times, ``close`` always.

    Both implementations pass the same tests (tests/test_engine_contract.py). Failures are raised as CellFailed with
    status ``oom``, ``timeout``, ``engine_error`` or ``refused``; a refusal means that vLLM does not take the
    configuration, which is a result.
    """

    evidence: Evidence

    def start(self, launch: Launch) -> LaunchFacts:
        """Bring the engine up and warm it for every prompt length the launch's cells can send."""
        ...

    def measure(self, schedule: Schedule, limit_s: float, heavy_probe: bool = False) -> Measurement:
        """Serve ``schedule`` and return its records, those of the heavy probe where it is asked for.

        Raises CellFailed(timeout) after ``limit_s`` seconds.
        """
        ...

    def close(self) -> None:
        """Free the GPU and end what was started; safe to call twice and after a failed start."""
        ...
