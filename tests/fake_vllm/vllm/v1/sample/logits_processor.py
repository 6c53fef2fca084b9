import inspect
from functools import partial
from typing import Any


class AdapterLogitsProcessor:
    """Turns one processor per request into one for the batch, as vLLM's does; here each request has a row at a time."""

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None: ...

    def new_state(self, params: Any, prompt_ids: list[int], output_ids: list[int]) -> Any:
        found = self.new_req_logits_processor(params)  # type: ignore[attr-defined]
        if found is None:
            return None
        several = len(inspect.signature(found).parameters) == 3
        return partial(found, prompt_ids, output_ids) if several else partial(found, output_ids)


class Row(list[float]):
    """A request's logits: as much of a tensor as a processor of one request uses."""

    def fill_(self, value: float) -> "Row":
        self[:] = [value] * len(self)
        return self
