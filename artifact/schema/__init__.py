"""What one experiment is, as frozen and checked types.

Every model forbids unknown keys. Numbers carry their unit in the field name. ``None`` always means "not set: vLLM's
own default", never zero.
"""

from artifact.schema.config import (
    BackendConfig,
    Config,
    EngineConfig,
    ExecutorConfig,
    ExplainConfig,
    FaultConfig,
    FiguresConfig,
    HardwareConfig,
    ModeConfig,
    ServerConfig,
    StudyConfig,
    TileConfig,
    TraceConfig,
    TrackingConfig,
)
from artifact.schema.model import ModelConfig
from artifact.schema.recommend import RecommendConfig
from artifact.schema.terms import Count, Evidence, Fraction, Frozen, Mode, Natural, NonNegative, Positive, Status
from artifact.schema.workload import ArrivalConfig, LengthConfig, WorkloadConfig

__all__ = [
    "ArrivalConfig",
    "BackendConfig",
    "Config",
    "Count",
    "EngineConfig",
    "Evidence",
    "ExecutorConfig",
    "ExplainConfig",
    "FaultConfig",
    "FiguresConfig",
    "Fraction",
    "Frozen",
    "HardwareConfig",
    "LengthConfig",
    "Mode",
    "ModeConfig",
    "ModelConfig",
    "Natural",
    "NonNegative",
    "Positive",
    "RecommendConfig",
    "ServerConfig",
    "Status",
    "StudyConfig",
    "TileConfig",
    "TraceConfig",
    "TrackingConfig",
    "WorkloadConfig",
]
