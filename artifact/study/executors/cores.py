"""The CPUs of a process and a number of workers in; a share of whole cores for each, out."""

import os
from collections.abc import Iterable
from pathlib import Path

_TOPOLOGY = Path("/sys/devices/system/cpu")
_PORTS = (21000, 100)  # the first port of the first worker, and how many each has
_ENOUGH = 4  # cores a worker, from which on one can be spared for the process that watches them


def _core(cpu: int) -> tuple[int, int]:
    """Return a CPU's package and core; where the kernel says nothing, every CPU is a core."""
    try:
        folder = _TOPOLOGY / f"cpu{cpu}" / "topology"
        return int((folder / "physical_package_id").read_text()), int((folder / "core_id").read_text())
    except (OSError, ValueError):
        return 0, cpu


def shares(cpus: Iterable[int], workers: int) -> list[set[int]]:
    """Return ``workers`` + 1 sets of CPUs: as many whole cores for each worker, and those of who watches them, last.

    Hyperthreads of a core stay together, and neighbours in one package, where the GPUs of neighbouring numbers are.
    With few cores the watcher has no core of its own, and with fewer than workers they share.
    """
    cores: dict[tuple[int, int], set[int]] = {}
    for cpu in cpus:
        cores.setdefault(_core(cpu), set()).add(cpu)
    ordered = [cores[name] for name in sorted(cores)]
    if len(ordered) < workers:
        return [*(ordered[number % len(ordered)] for number in range(workers)), set().union(*ordered)]
    spare = len(ordered) >= _ENOUGH * workers + 1
    each = (len(ordered) - spare) // workers
    parts = [set().union(*ordered[number * each : (number + 1) * each]) for number in range(workers)]
    rest = ordered[workers * each :] if spare else ordered
    return [*parts, set().union(*rest)]


def settle(number: int, workers: int) -> None:
    """Make this process the ``number``-th of ``workers`` on this machine: its share of the cores, ports of its own.

    vLLM looks for a free port, closes it and uses it later: two that do so at once may find the same one.
    """
    os.sched_setaffinity(0, shares(os.sched_getaffinity(0), workers)[number])
    first, each = _PORTS
    given = os.environ.get("VLLM_PORT", "")
    os.environ["VLLM_PORT"] = str((int(given) if given.isdigit() else first) + number * each)
