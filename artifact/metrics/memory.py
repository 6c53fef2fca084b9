"""Bytes that vLLM reports in, what they mean and whether they can be believed out."""

import pandas as pd

_BYTES = ("graph_bytes", "graph_estimate_bytes", "weights_bytes", "activation_bytes", "kv_available_bytes")


def kv_tokens_lost(graph_bytes: int | None, kv_bytes_per_token: int) -> int | None:
    """Return how many tokens of KV cache the graphs' memory would have held; None for unknown or impossible bytes.

    graph_bytes / kv_bytes_per_token, rounded up: a token that does not fit whole is lost.
    """
    if graph_bytes is None or graph_bytes < 0:
        return None
    return -(-graph_bytes // kv_bytes_per_token)


def memory_valid(
    graph_bytes: int | None,
    graph_estimate_bytes: int | None,
    captures: int | None,
    others: tuple[int | None, ...] = (),
) -> bool | None:
    """Return whether the bytes of one launch can be believed; the raw numbers stay where they are.

    Graph bytes and their estimate are differences of free memory: negative is impossible, and zero is no measurement
    unless nothing was captured. ``others`` (weights, activations, KV cache) are to be positive. Absent numbers are not
    judged; None where all are absent.
    """
    graphs = [value for value in (graph_bytes, graph_estimate_bytes) if value is not None]
    rest = [value for value in others if value is not None]
    if not graphs and not rest:
        return None
    least = 0 if captures == 0 else 1
    return all(value >= least for value in graphs) and all(value > 0 for value in rest)


def believed(launches: pd.DataFrame) -> pd.DataFrame:
    """Return ``launches`` (records.LaunchRow) with null in place of the bytes of launches that are not valid."""
    columns = [name for name in _BYTES if name in launches]
    invalid = launches["memory_valid"].eq(other=False).fillna(value=False).astype(bool)
    return launches.assign(**{name: launches[name].mask(invalid) for name in columns})


def estimate_error(graph_estimate_bytes: int | None, graph_bytes: int | None) -> float | None:
    """Return estimate / measured - 1 of the graphs' memory; None unless both are positive."""
    if not graph_estimate_bytes or not graph_bytes or graph_estimate_bytes < 0 or graph_bytes < 0:
        return None
    return graph_estimate_bytes / graph_bytes - 1
