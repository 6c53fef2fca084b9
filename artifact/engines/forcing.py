"""Tokens to force and what vLLM answered in, the forced row of logits and rows of scores out. Imports no vLLM."""

from collections.abc import Mapping, Sequence
from typing import Any

# Where a request's SamplingParams.extra_args hold the tokens to force.
EXTRA = "forced_token_ids"
PROCESSOR = "artifact.engines.forcing_processor:ForcedTokens"


def force(forced: Sequence[int], output_ids: Sequence[int], logits: Any) -> Any:
    """Let only the next forced token through; ``logits`` is one request's row and is changed in place.

    The position is the number of tokens so far. Under async scheduling the last of them may still be a placeholder,
    which counts: the worker appends one for each step before the next step begins.
    """
    position = len(output_ids)
    if position < len(forced):
        logits.fill_(float("-inf"))
        logits[forced[position]] = 0.0
    return logits


def scores(
    forced: Sequence[int], position: int, token_ids: Sequence[int], logprobs: Sequence[Mapping[int, Any]]
) -> list[dict[str, float | int]]:
    """Return a row for each token that arrived, the first of them at ``position`` of the answer.

    ``logprobs`` is vLLM's for logprobs=1: for each token a mapping of token to Logprob that holds the sampled token
    first and the most probable one last, which may be the same. Raises ValueError where another token than the forced
    one was sampled.
    """
    rows: list[dict[str, float | int]] = []
    for offset, (token, found) in enumerate(zip(token_ids, logprobs, strict=True)):
        if token != forced[position + offset]:
            raise ValueError(f"token {token} at position {position + offset}, forced {forced[position + offset]}")
        top = list(found)[-1]
        rows.append(
            {
                "position": position + offset,
                "token": token,
                "logprob": float(found[token].logprob),
                "top_token": top,
                "top_logprob": float(found[top].logprob),
            }
        )
    return rows
