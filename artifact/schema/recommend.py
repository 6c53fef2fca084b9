"""What ``recommend`` is asked: the objective, the limits, and how sure the answer has to be."""

from typing import Annotated, Literal

from pydantic import Field

from artifact.schema.terms import Count, Fraction, Frozen, NonNegative, Positive


class RecommendConfig(Frozen):
    """conf/config.yaml, ``recommend``; the load is ``workload``, whose slo_ttft_ms and slo_tpot_ms goodput counts.

    ``margin`` is a share of the objective, for goodput a difference of shares: modes within it are equivalent.
    """

    objective: Literal["tpot_p50", "tpot_p99", "ttft_p99", "e2e_p99", "throughput", "goodput"]
    margin: Annotated[float, Field(gt=0, lt=1)]
    seeds: Count | None  # null: 8, or one where a schedule has more than 2,500 requests
    max_graph_mib: NonNegative | None
    max_capture_s: NonNegative | None  # of start-up: what capturing the graphs adds to it
    slo_share: Fraction  # of requests that are within both targets, for a mode to meet the SLO
    require_slo: bool
    uptime_s: Positive | None  # of one engine start: a mode whose capture is not earned back in it gives way
    launch_us: tuple[Positive, ...]  # host cost of a graph launch for which the answer is given again
    serve_command: str | None  # an existing `vllm serve ...`: its settings take the place of model and server
