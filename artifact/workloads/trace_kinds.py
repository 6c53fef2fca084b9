"""A trace's first line and the options in; its format, and the names and unit of its columns, out."""

import json
from collections.abc import Sequence
from pathlib import Path

from artifact.errors import InputError
from artifact.schema import TraceConfig

AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
MOONCAKE_KEYS = ("timestamp", "input_length", "output_length")
BURSTGPT_COLUMNS = ("Timestamp", "Request tokens", "Response tokens")
_BURSTGPT_ALWAYS = frozenset((*BURSTGPT_COLUMNS, "Model", "Total tokens", "Log Type"))
_BURSTGPT_LATER = frozenset(("Session ID", "SessionID", "Elapsed time"))  # of later releases
VLLM_KEYS = ("prompt", "output_tokens")
PLAIN_COLUMNS = {"time": "timestamp", "prompt": "prompt_tokens", "output": "output_tokens"}

FIXED_UNIT = {"azure": None, "mooncake": "ms", "burstgpt": "s", "vllm": None, "recording": None}


def detect(path: Path, text: str) -> str:
    """Return the format that the first line proves. Raises InputError where it proves none."""
    columns = [name.strip() for name in text.split(",")]
    if tuple(columns) == AZURE_COLUMNS:
        return "azure"
    if set(columns) - _BURSTGPT_LATER == _BURSTGPT_ALWAYS and len(set(columns)) == len(columns):
        return "burstgpt"
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        record = None
    keys = set(record) if isinstance(record, dict) else set()
    if keys - {"hash_ids"} == set(MOONCAKE_KEYS):
        return "mooncake"
    if keys == set(VLLM_KEYS):
        return "vllm"
    known = "azure, mooncake, burstgpt, vllm, recording, csv or jsonl"
    raise InputError(f"{path}: the format is not certain; set trace.format to {known}")


def check_options(kind: str, trace: TraceConfig) -> None:
    """Raise InputError for a key that ``kind`` does not take, or needs and lacks."""
    if kind in FIXED_UNIT:
        fixed = FIXED_UNIT[kind]
        if trace.time_unit not in (None, fixed):
            known = f"counts in {fixed}" if fixed else "has no times" if kind == "vllm" else "has time stamps"
            raise InputError(f"trace.time_unit={trace.time_unit}: the {kind} format {known}; set it to null")
        if trace.columns:
            raise InputError(f"trace.columns: the {kind} format has its own names; set it to null, or format to csv")
    if kind == "vllm" and trace.rate_per_s is None:
        raise InputError("trace.rate_per_s: the vllm format has no times; set the rate of its Poisson arrivals")
    if kind != "vllm":
        for key in ("rate_per_s", "chars_per_token"):
            if (value := getattr(trace, key)) is not None:
                raise InputError(f"trace.{key}={value:g}: the {kind} format has its own; set it to null")


def names_of(kind: str, trace: TraceConfig) -> Sequence[str]:
    """Return the names of the time, prompt and output columns; of prompt and output alone where there are no times."""
    own = {"azure": AZURE_COLUMNS, "mooncake": MOONCAKE_KEYS, "burstgpt": BURSTGPT_COLUMNS, "vllm": VLLM_KEYS}
    if kind in own:
        return own[kind]
    names = PLAIN_COLUMNS | {str(role): name for role, name in (trace.columns or {}).items()}
    return names["time"], names["prompt"], names["output"]
