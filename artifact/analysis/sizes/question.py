"""Overrides in; what ``sizes`` is asked, with all that follows before a load is served, out."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from artifact.analysis.sizes.batches import Served
from artifact.analysis.sizes.choice import Grid, default_server, grid
from artifact.analysis.sizes.costs import StepCosts, host_shares
from artifact.analysis.sizes.graphs import Takes, takes
from artifact.config import load
from artifact.errors import InputError
from artifact.graphs.dispatch import dispatcher
from artifact.graphs.explain import resolve_config, validate
from artifact.graphs.modes import Resolution, query_len
from artifact.schema import Config, Mode, ModeConfig
from artifact.simulator.cost import Calibration, load_calibration


@dataclass(frozen=True)
class Question:
    """The configuration that is asked about, and what follows from it before anything is served."""

    config: Config
    resolution: Resolution
    calibration: Calibration
    grid: Grid
    takes: Takes

    @property
    def simulated(self) -> Config:
        """The configuration as the simulator takes it: vLLM's own sizes, one GPU, no speculation, no adapters."""
        plain = {"tensor_parallel_size": 1, "num_speculative_tokens": 0, "max_loras": 0}
        server = default_server(self.config.server).model_copy(update=plain)
        mode = self.config.mode if self.resolution.hollow else ModeConfig(name=self.resolution.resolved)
        return self.config.model_copy(update={"server": server, "mode": mode})

    @property
    def query_len(self) -> int:
        """Tokens of a decoding request in a step."""
        return query_len(self.config.server)

    @property
    def is_plain(self) -> bool:
        """Whether the simulator takes the server as it is."""
        server = self.config.server
        return (server.tensor_parallel_size, server.num_speculative_tokens, server.max_loras) == (1, 0, 0)


@dataclass(frozen=True, eq=False)
class Load:
    """What serving one load with vLLM's own sizes gave, and what its batches cost."""

    name: str
    served: Served
    costs: StepCosts


def ask(overrides: Sequence[str], shipped: Path | None = None) -> Question:
    """Return what ``overrides`` ask. Raises as ``sizes`` does."""
    config = load(overrides)
    validate(config)
    resolution = resolve_config(config)
    if resolution.resolved in (Mode.NONE, Mode.EAGER):
        raise InputError(
            f"mode={config.mode.name.value.lower()}: captures no graphs, so no sizes are to be chosen; "
            "take mode=full_and_piecewise, or see artifact recommend"
        )
    calibration = load_calibration(config.engine.calibration, config.hardware, config.model.name)
    return Question(config, resolution, calibration, grid(config, resolution), takes(config, calibration, shipped))


def priced(question: Question, name: str, served: Served) -> Load:
    """Return a served load with the costs of its batches, the host's states as they fell with vLLM's own sizes."""
    graphs = dispatcher(default_server(question.config.server), question.grid.mode)
    shares = host_shares(question.calibration, question.resolution, served.batches, graphs)
    return Load(name, served, StepCosts(question.calibration, question.resolution, served.batches, shares))
