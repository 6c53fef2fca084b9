"""The text after a flag of ``vllm serve`` in, its value out; InputError that names the flag where it is none."""

import json
import re
from typing import Any

from artifact.errors import InputError
from artifact.schema import Mode

KEY = "recommend.serve_command"
_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def nested(name: str, path: list[str], text: str) -> dict[str, Any]:
    """Return the mapping of a flag that takes JSON, whole or one key of it as ``--flag.key value``."""
    try:
        value: Any = json.loads(text)
    except json.JSONDecodeError as error:
        if not path:
            raise InputError(
                f"{KEY}: {name} takes JSON, {text!r} is none ({error.msg}); {name}.KEY=VALUE needs no quotes"
            ) from None
        value = text
    for key in reversed(path):
        value = {key: value}
    if not isinstance(value, dict):
        raise InputError(f"{KEY}: {name} takes a JSON object, not {text!r}")
    return value


def mode(value: Any) -> Mode:
    """Return the mode called ``value``, in any case."""
    known = {mode.value: mode for mode in Mode if mode is not Mode.EAGER}
    if str(value).upper() not in known:
        raise InputError(f"{KEY}: cudagraph_mode={value!r} is no mode; known: {', '.join(known)}")
    return known[str(value).upper()]


def count(name: str, text: str) -> int:
    """Return a whole number from 1 on; 8k is 8,000 and 8K is 8,192, as vLLM has it."""
    match = re.fullmatch(r"(\d+)(\.\d+)?([kKmMgGtT])?", text.strip())
    number = 0 if match is None else float(f"{match[1]}{match[2] or ''}") * _SUFFIXES.get(match[3] or "", 1)
    if number < 1 or number != int(number):
        raise InputError(f"{KEY}: {name} takes a whole number from 1 on, not {text!r}")
    return int(number)


def fraction(name: str, text: str) -> float:
    """Return a number over 0 and up to 1."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 1:
        raise InputError(f"{KEY}: {name} takes a number over 0 and up to 1, not {text!r}")
    return number
