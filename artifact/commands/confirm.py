"""Overrides of study=confirm in; the same with the mode to confirm as an arm, and the verdict on what was run, out."""

from pathlib import Path

from artifact.commands.common import Answer, say, shipped_folder
from artifact.config import load
from artifact.schema import Mode

_STUDY = "confirm"
_WINDOW_S = 30


def arranged(overrides: list[str]) -> list[str]:
    """Return ``overrides`` with what study=confirm leaves open; those of another study as they are.

    The arm: what `recommend` names for the workload, or the best other mode where it names the default. Equal
    overrides give equal additions, so that a stopped run goes on. Raises what ``recommend`` raises.
    """
    from artifact.analysis.recommend.recommendation import recommend

    config = load(overrides)
    if config.study.name != _STUDY:
        return overrides
    added = []
    if config.trace.window is None and config.trace.requests is None:
        added.append(f"trace.window=[0,{_WINDOW_S}]")
    if len(config.study.arms) == 1:
        folder = shipped_folder()
        answer = recommend([*overrides, *added, "workload=trace"], folder if folder.is_dir() else None)
        ranked = [str(row["mode"]) for row in answer["ranking"]]
        named, default = str(answer["recommended"]), next(iter(config.study.arms))
        other = named if named != default else next(mode for mode in ranked if mode != default)
        why = "recommended" if other == named else "the default is recommended; this is the next best"
        say(f"confirm: {default} against {other} ({why}; {answer['evidence']})")
        added.append(f"study.arms.{other}=['mode={Mode(other).value.lower()}']")
    return [*overrides, *added]


def verdicts(overrides: list[str], asked: set[str], rows: Answer) -> Answer:
    """Return ``rows`` of a finished run of study=confirm with the contrasts of ``asked``; of another study as they are.

    ``asked`` are the run's own cells: another trace may have been served into the same folder before.
    """
    from artifact.analysis.contrasts import sweep
    from artifact.analysis.contrasts.verdicts import findings

    config = load(overrides)
    if config.study.name != _STUDY:
        return rows
    read = sweep.read(Path(config.executor.results), (config.study.name,))
    modes = list(config.study.arms)
    found = [] if read is None else findings(read.only(asked), modes=modes)
    return {**rows, "verdicts": [each.row() for each in found]}
