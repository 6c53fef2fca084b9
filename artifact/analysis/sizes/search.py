"""What batches cost between any two neighbouring capture sizes in; the best list of every length out.

A batch is padded to the smallest size that holds it, so a list's cost is a sum over neighbouring sizes, and the best
list of a given length comes from the best lists that are one shorter: a dynamic program over the sorted candidates,
exact whatever the costs are. *Low* candidates, those that decode graphs are captured at, are counted apart from the
*high* ones above them, because the two take different numbers of graphs.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Problem:
    """m candidates, and the cost of all batches between any two of them, in any one unit.

    ``segment[i, j]``, shape (m + 1, m): batches above candidate i - 1 (i = 0: all) and up to candidate j, padded to
    j; read for i <= j alone. ``above[i]``, shape (m + 1,): batches above candidate i - 1, where that is the largest
    size. Costs are finite.
    """

    sizes: Ints  # shape (m,), ascending
    low: int  # the first so many candidates are low
    segment: Floats
    above: Floats
    kept: npt.NDArray[np.bool_]  # shape (m,): in every list


@dataclass(frozen=True, eq=False)
class Frontier:
    """The least cost with exactly a low and b high sizes, ``cost[a, b]``; infinite where no list has that shape."""

    cost: Floats
    _problem: Problem
    _segment: Floats  # as ``_guarded`` has it
    _lows: Floats
    _highs: Floats

    def sizes(self, low: int, high: int) -> tuple[int, ...]:
        """Return a list of ``low`` low and ``high`` high sizes whose cost is ``cost[low, high]``, ascending."""
        at, *highs = self._from_last_low(low, high)
        chosen = []
        for count in range(low, 0, -1):  # position i stands for candidate i - 1, and 0 for none
            chosen.append(at - 1)
            at = int(np.argmin(self._lows[count - 1] + _column(self._segment, at - 1)))
        chosen.reverse()
        chosen += [at - 1 for at in highs]
        return tuple(int(self._problem.sizes[index]) for index in chosen)

    def largest(self, low: int, high: int) -> int:
        """Return the last of ``sizes``, 0 of an empty list."""
        at = self._from_last_low(low, high)[-1]
        return int(self._problem.sizes[at - 1]) if at else 0

    def _from_last_low(self, low: int, high: int) -> list[int]:
        """Return the position of the last low size of that list, and those of its high ones."""
        first, positions = self._problem.low, [int(np.argmin(self._lows[low] + self._highs[high]))]
        for count in range(high, 0, -1):
            row = self._segment[positions[-1], first:] + self._highs[count - 1][first + 1 :]
            positions.append(first + int(np.argmin(row)) + 1)
        return positions


def _guarded(problem: Problem) -> Floats:
    """Return ``segment``, infinite where i > j and where a list would leave out a candidate that is kept."""
    m = len(problem.sizes)
    kept_before = np.concatenate([[0], np.cumsum(problem.kept)])  # among the first i candidates
    after, upto = np.arange(m + 1)[:, None], np.arange(m)[None, :]
    skips = kept_before[upto] - kept_before[np.minimum(after, upto)] > 0
    return np.where((after > upto) | skips, np.inf, problem.segment)


def _column(segment: Floats, candidate: int) -> Floats:
    return np.asarray(segment[:, candidate])


def search(problem: Problem, most_low: int | None = None, most_high: int | None = None) -> Frontier:
    """Return the best lists of all shapes, of at most ``most_low`` low and ``most_high`` high sizes if given.

    Takes m^2 time for each low or high size that a list may have.
    """
    m, low = len(problem.sizes), problem.low
    segment = _guarded(problem)
    lows = _lows(segment, m, min(low, low if most_low is None else most_low), low)
    above = np.where(_kept_above(problem), np.inf, problem.above)
    highs = _highs(segment, above, low, min(m - low, m - low if most_high is None else most_high))
    cost = np.full((len(lows), len(highs)), np.inf)
    for count, row in enumerate(lows):
        cost[count] = (highs + row).min(axis=1)
    return Frontier(cost, problem, segment, lows, highs)


def _kept_above(problem: Problem) -> npt.NDArray[np.bool_]:
    """Return, for each position, whether a candidate above it is kept."""
    return np.append(np.cumsum(problem.kept[::-1])[::-1] > 0, False)


def _lows(segment: Floats, m: int, most: int, low: int) -> Floats:
    """Return the least cost of the batches up to a position with so many sizes, the last one there."""
    table = np.full((most + 1, m + 1), np.inf)
    table[0, 0] = 0.0
    for count in range(1, most + 1):
        table[count, 1 : low + 1] = (table[count - 1, : low + 1, None] + segment[: low + 1, :low]).min(axis=0)
    return table


def _highs(segment: Floats, above: Floats, low: int, most: int) -> Floats:
    """Return the least cost of the batches above a position with so many high sizes above it."""
    table = np.full((most + 1, len(above)), np.inf)
    table[0] = above
    for count in range(1, most + 1):
        table[count] = (segment[:, low:] + table[count - 1, low + 1 :]).min(axis=1)
    return table
