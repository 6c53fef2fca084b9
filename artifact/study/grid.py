"""A study's tile and the base overrides in; every arm's configurations, composed and checked, out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from omegaconf import OmegaConf

from artifact.config import CONF_DIR, groups, load
from artifact.errors import CellFailed, InputError
from artifact.graphs.explain import resolve_config, validate
from artifact.schema import Config, Mode, StudyConfig, TileConfig, WorkloadConfig
from artifact.study.identity import digest, server_hash

_OPEN_LOOPS = ("constant", "poisson", "gamma")
_RATE_KEY = "workload.arrival.rate_per_s"


@dataclass(frozen=True)
class Grid:
    """A tile, composed: for each arm, the configuration and load of each cell in order."""

    tile: TileConfig
    arms: dict[str, list[tuple[Config, float | None]]]

    @classmethod
    def of(cls, overrides: Sequence[str], study: StudyConfig, tile: TileConfig) -> Self:
        """Compose and check every cell of ``tile``. Raises InputError, which names study, tile and arm."""
        arms = {}
        for arm, arm_overrides in study.arms.items():
            cells: list[tuple[Config, float | None]] = []
            for workload in tile.workloads:
                try:
                    config = load([*overrides, *tile.overrides, *arm_overrides, *workload])
                    validate(config)
                    cells += _loads(tile, config)
                except InputError as error:
                    raise InputError(f"study {study.name}, tile {tile.name}, arm {arm}: {error}") from None
            if not cells:
                raise InputError(f"study {study.name}, tile {tile.name}: needs at least one workload")
            arms[arm] = cells
        return cls(tile, arms)

    def duplicates(self) -> dict[str, str]:
        """Return the arms whose mode vLLM changes to what another arm, asking for another mode, realises already."""
        seen: dict[str, tuple[str, Mode]] = {}
        found: dict[str, str] = {}
        resolved = {}
        for arm, cells in self.arms.items():
            try:
                resolved[arm] = resolve_config(cells[0][0])
            except CellFailed:
                continue  # vLLM refuses it, which is a result of its own
        # Arms that get what they asked for come first: the changed one is the copy.
        for arm in sorted(resolved, key=lambda arm: resolved[arm].requested is not resolved[arm].resolved):
            result, config = resolved[arm], self.arms[arm][0][0]
            if result.requested is Mode.EAGER:
                continue
            what = [result.resolved, result.hollow, config.backend.model_dump(), config.engine.heavy_probe]
            realised = digest([*what, server_hash(config)])
            other, asked = seen.setdefault(realised, (arm, result.requested))
            if asked is not result.requested:
                found[arm] = other
        return found


def _loads(tile: TileConfig, config: Config) -> Iterator[tuple[Config, float | None]]:
    """Yield the configuration at each of the tile's rates; closed loops, bursts and traces have one of their own."""
    is_open = config.workload.arrival.process in _OPEN_LOOPS
    if is_open and tile.rates_per_s:
        for rate in tile.rates_per_s:
            yield _at_rate(config, rate), None
    elif is_open and tile.loads:
        for load_ in tile.loads:
            yield _at_rate(config, load_ * saturation_rate(config.model.name)), load_
    else:
        yield config, None


def _at_rate(config: Config, rate_per_s: float) -> Config:
    values = config.workload.model_dump()
    values["arrival"]["rate_per_s"] = rate_per_s
    return config.model_copy(update={"workload": WorkloadConfig.model_validate(values)})


def saturation_rate(model: str, file: Path | None = None) -> float:
    """Return the reference mode's saturation for ``model`` in requests per second, from conf/saturation.yaml."""
    file = file or CONF_DIR / "saturation.yaml"
    entries: Any = OmegaConf.to_container(OmegaConf.load(file)) if file.exists() else {}
    rate = (entries.get(model) or {}).get("rate_per_s")
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < float("inf"):
        raise InputError(
            f"{file.name}: no rate_per_s for model {model}, which study.tiles.loads are fractions of; "
            "measure it and add it, or give the tile rates_per_s"
        )
    return float(rate)


def refuse_conflicts(overrides: Sequence[str], study: StudyConfig) -> None:
    """Raise InputError for an override of what ``study`` sets itself: part of it would be lost without a word.

    A value below a group that a tile chooses (``server.max_num_seqs`` where it sets ``server``) is no conflict: it
    holds for all arms. Below a group that the arms choose it would undo what tells them apart.
    """
    of_arms = {_key(override) for arm in study.arms.values() for override in arm}
    of_tiles = {_key(override) for tile in study.tiles for override in tile.overrides}
    of_tiles |= {_key(override) for tile in study.tiles for workload in tile.workloads for override in workload}
    if any(tile.loads or tile.rates_per_s for tile in study.tiles):
        of_tiles.add(_RATE_KEY)
    for override in overrides:
        key = _key(override)
        for setter, its_keys in (("arms", of_arms), ("tiles", of_tiles)):
            clash = next((its for its in sorted(its_keys) if _overlaps(key, its, setter)), None)
            if clash is not None:
                raise InputError(
                    f"{override}: study {study.name} sets {clash} itself, in study.{setter}; leave it out, or put it "
                    f"into the study.{setter} of a file in conf/study and choose that with study=NAME"
                )


def _key(override: str) -> str:
    return override.split("=", 1)[0].strip()


def _overlaps(key: str, its: str, setter: str) -> bool:
    if key == its:
        return True
    if key.startswith(f"{its}."):
        return setter == "arms" or its not in groups()
    return its.startswith(f"{key}.") and key not in groups()
