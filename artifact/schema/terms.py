"""The words of the study as types: modes, evidence, status, and numbers that are checked."""

from enum import StrEnum
from math import isfinite
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field


class Mode(StrEnum):
    """The five values of vLLM's ``cudagraph_mode``, plus EAGER: no compilation and no graphs."""

    NONE = "NONE"
    PIECEWISE = "PIECEWISE"
    FULL = "FULL"
    FULL_DECODE_ONLY = "FULL_DECODE_ONLY"
    FULL_AND_PIECEWISE = "FULL_AND_PIECEWISE"
    EAGER = "EAGER"


class Evidence(StrEnum):
    """Where a number comes from; the two are never mixed unlabelled."""

    MEASURED = "measured"
    SIMULATED = "simulated"


class Status(StrEnum):
    """How a planned cell ended. Only OK rows carry metrics."""

    OK = "ok"
    OOM = "oom"
    TIMEOUT = "timeout"
    ENGINE_ERROR = "engine_error"
    REFUSED = "refused"
    DUPLICATE = "duplicate"
    SKIPPED = "skipped"


def _finite(value: float) -> float:
    if not isfinite(value):
        raise ValueError("must be a finite number")
    return value


def _whole(value: object) -> object:
    """Refuse 1.5, "3" and true where a count is meant: pydantic would round or convert some of them."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"must be a whole number, not {value!r}")
    return value


Count = Annotated[int, BeforeValidator(_whole), Field(ge=1)]
Natural = Annotated[int, BeforeValidator(_whole), Field(ge=0)]
Positive = Annotated[float, AfterValidator(_finite), Field(gt=0)]
NonNegative = Annotated[float, AfterValidator(_finite), Field(ge=0)]
Fraction = Annotated[float, AfterValidator(_finite), Field(gt=0, le=1)]


class Frozen(BaseModel):
    """Base of all configuration: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())
