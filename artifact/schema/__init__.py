"""What one experiment is, as frozen and checked types.

Every model forbids unknown keys. Numbers carry their unit in the field name. ``None`` always means "not set: vLLM's
own default", never zero.
"""

from artifact.schema.config import (
    BackendConfig,
    Config,
    EngineConfig,
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
from artifact.schema.executor import ExecutorConfig, RayConfig, SlurmConfig
from artifact.schema.model import ModelConfig
from artifact.schema.recommend import RecommendConfig
from artifact.schema.record import RecordConfig
from artifact.schema.report import ReportConfig
from artifact.schema.sizes import SizesConfig
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
    "RayConfig",
    "RecommendConfig",
    "RecordConfig",
    "ReportConfig",
    "ServerConfig",
    "SizesConfig",
    "SlurmConfig",
    "Status",
    "StudyConfig",
    "TileConfig",
    "TraceConfig",
    "TrackingConfig",
    "WorkloadConfig",
]
