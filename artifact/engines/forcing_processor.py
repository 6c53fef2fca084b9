"""A request's forced tokens in, logits that let only the next one through out: vLLM's custom logits processor.

vLLM takes the log-probabilities that it returns from the logits before any processor (logprobs_mode raw_logprobs), so
they are those of the model although the sampled token is ours: the answer is decoded step by step, on the same graphs
as any other. Loaded by name (``forcing.PROCESSOR``) into launches that score, and into no others.
"""

from functools import partial
from typing import Any

from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

from artifact.engines.forcing import EXTRA, force


class ForcedTokens(AdapterLogitsProcessor):  # type: ignore[misc]  # vllm is untyped where it is not installed
    """Of use to requests whose ``extra_args`` hold tokens to force; the others pass as they are."""

    def is_argmax_invariant(self) -> bool:
        """Return that greedy sampling is changed: else vLLM would leave it out at temperature 0."""
        return False

    def new_req_logits_processor(self, params: Any) -> Any:
        """Return what is called with (output token ids, the request's logits) at each of its steps, or None."""
        tokens = (params.extra_args or {}).get(EXTRA)
        return None if tokens is None else partial(force, tokens)
