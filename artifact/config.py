"""Command-line overrides in, a frozen Config out: Hydra composes, pydantic checks, DictConfig ends here.

Touches no environment, GPU or file outside ``conf/``.
"""

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import ValidationError

from artifact.errors import InputError, nearest
from artifact.schema import Config, Mode

_PACKAGE = Path(__file__).resolve().parent
# An installed wheel carries conf/ inside the package; a checkout has it beside the package.
CONF_DIR = _PACKAGE / "conf" if (_PACKAGE / "conf").is_dir() else _PACKAGE.parent / "conf"


def groups() -> dict[str, list[str]]:
    """Return the names of every group's presets, e.g. ``{"mode": ["eager", "full", ...], ...}``."""
    return {
        folder.name: sorted(file.stem for file in folder.glob("*.yaml"))
        for folder in sorted(CONF_DIR.iterdir())
        if folder.is_dir() and any(folder.glob("*.yaml"))
    }


def _checked(override: str) -> str:
    """Refuse what Hydra would take for a sweep, and give preset names their case back."""
    if not override.isprintable():
        raise InputError(f"{override!r}: a line break or another character that cannot be printed; leave it out")
    if "=" not in override[1:]:
        raise InputError(f"{override!r} is neither a command nor key=value")
    try:
        parsed = OverridesParser.create().parse_override(override)
    except HydraException as error:
        first = str(error).splitlines()[0]
        raise InputError(f"{override}: cannot be read ({first}); quote it: 'key=[1,2]', 'key={{a: 1}}'") from None
    if parsed.is_sweep_override():
        raise InputError(f"{override}: commas outside brackets are a sweep; write one value, or a list as [a,b]")
    key = parsed.key_or_group.lstrip("+~")
    if key == "defaults" or parsed.is_add() or parsed.is_delete() or parsed.package is not None:
        raise InputError(f"{override}: only key=value and group=choice are taken")
    choices = groups().get(key)
    if choices is None:
        # ++ also sets what the schema knows and the chosen preset does not write; pydantic refuses the rest
        return f"++{override}"
    if parsed.value() is None:
        raise InputError(f"{override}: null is no {key}; known: {', '.join(choices)}")
    choice = str(parsed.value()).lower().replace(" ", "")
    if choice not in choices:
        raise InputError(
            f"{key}={parsed.value()}: no such {key}{nearest(choice, choices)}; known: {', '.join(choices)}"
        )
    return f"{key}={choice}"


def _one_line(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"]) or "configuration"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] in ("literal_error", "enum"):
        message += nearest(str(first["input"]), re.findall(r"'([^']*)'", first["ctx"]["expected"]))
    if first["type"] == "extra_forbidden":
        return f"{where}: no such key{nearest(where, _keys())}"
    shown = "" if isinstance(first["input"], dict) else f"={first['input']!r}"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{where}{shown}: {message}{more}"


@cache
def _of_hydra(folder: Path, choice: str | None) -> dict[str, Any]:
    """Return Hydra's composition with one preset chosen, or none, not yet resolved."""
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(folder), version_base="1.3"):
        raw: Any = OmegaConf.to_container(compose("config", overrides=[choice] if choice else []))
    return raw  # type: ignore[no-any-return]


def _plain(overrides: Sequence[str]) -> Any:
    """Return the composition as plain values: each preset lies below its group alone, values come behind all presets.

    Put together here, because Hydra takes 0.3 s for a composition and a study has hundreds.
    """
    choices = dict(override.split("=", 1) for override in overrides if not override.startswith("++"))
    try:
        chosen = {group: _of_hydra(CONF_DIR, f"{group}={choice}")[group] for group, choice in choices.items()}
        raw = OmegaConf.create(_of_hydra(CONF_DIR, None) | chosen)
        for override in overrides:
            if override.startswith("++"):
                _set(raw, override)
        return OmegaConf.to_container(raw, resolve=True, throw_on_missing=True)
    except HydraException as error:
        raise InputError(_hydra_reason(error)) from None
    except OmegaConfBaseException as error:
        raise InputError(f"{error.full_key or 'configuration'}: {str(error).splitlines()[0]}") from None


def _set(raw: Any, override: str) -> None:
    """Merge ``++key=value`` as Hydra does."""
    parsed = OverridesParser.create().parse_override(override)
    try:
        OmegaConf.update(raw, parsed.key_or_group, parsed.value(), merge=True, force_add=True)
    except OmegaConfBaseException:
        raise InputError(f"{override.removeprefix('++')}: cannot be set there") from None


@lru_cache(maxsize=512)
def _composed(overrides: tuple[str, ...]) -> Config:
    plain = _plain(overrides)
    try:
        return Config.model_validate(plain)
    except ValidationError as error:
        raise InputError(_one_line(error)) from None


def _hydra_reason(error: HydraException) -> str:
    text = str(error)
    if match := re.search(r"Could not override '([^']+)'", text):
        return f"{match[1]}: no such key{nearest(match[1], _keys())}"
    return " ".join(text.split())[:300]


def _keys() -> list[str]:
    def walk(prefix: str, value: object) -> list[str]:
        if isinstance(value, dict) and value:
            return [
                name for key, inner in value.items() for name in [f"{prefix}{key}", *walk(f"{prefix}{key}.", inner)]
            ]
        return []

    try:
        return walk("", Config.model_validate(_plain(())).model_dump())
    except (InputError, ValidationError):  # conf/ itself is wrong: there is no name to suggest
        return []


def load(overrides: Sequence[str] = ()) -> Config:
    """Compose ``conf/config.yaml`` with ``overrides`` (``group=choice`` or ``key=value``) and check it.

    Raises InputError, one line that names the key, for an unknown group, choice or key, a value of the wrong kind
    or out of range, and for anything Hydra would take as a sweep.
    """
    return _composed(tuple(_checked(override) for override in overrides))


def mode_named(text: str) -> Mode:
    """Return the mode called ``text`` in any case. Raises InputError with the nearest name."""
    try:
        return Mode(text.upper())
    except ValueError:
        known = [mode.value for mode in Mode]
        raise InputError(f"{text}: no such mode{nearest(text.upper(), known)}; known: {', '.join(known)}") from None
