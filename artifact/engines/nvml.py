"""A GPU in; its name, memory, clock, power and temperature out. What NVML cannot say is null, with a reason.

Memory is the device's own total, never the sum of processes: inside a container, on WSL2 and under MIG the
per-process figures are missing or belong to other PIDs.
"""

import os
import statistics
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self

_NOT_AVAILABLE = 2**64 - 1  # NVML_VALUE_NOT_AVAILABLE: a number that means none


class Reading(NamedTuple):
    """One value, or null and the reason why there is none."""

    value: float | None
    reason: str | None = None


@dataclass(frozen=True)
class Gpu:
    """What NVML says of the GPU that CUDA sees first. ``reasons`` holds one line for each field that is null."""

    name: str | None = None
    uuid: str | None = None
    driver: str | None = None
    total_bytes: int | None = None
    used_bytes: int | None = None
    mig: bool | None = None
    reasons: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Samples:
    """A sampled span: the number of samples, peak memory, median clock, mean power, peak temperature."""

    n: int
    used_bytes: int | None = None
    sm_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    reasons: dict[str, str] = field(default_factory=dict)


class _NoGpu(Exception):
    """NVML or the GPU cannot be reached; the message says why."""


def _handle(nvml: Any) -> Any:
    """Return NVML's handle of CUDA's first device: NVML itself knows nothing of CUDA_VISIBLE_DEVICES."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    first = "0" if visible is None else visible.split(",")[0].strip()
    if first in ("", "-1", "NoDevFiles"):
        raise _NoGpu(f"CUDA_VISIBLE_DEVICES={visible!r} hides every GPU")
    return _named(nvml, first)


def _named(nvml: Any, name: str) -> Any:
    return nvml.nvmlDeviceGetHandleByIndex(int(name)) if name.isdigit() else nvml.nvmlDeviceGetHandleByUUID(name)


@contextmanager
def _device() -> Iterator[tuple[Any, Any]]:
    """Open NVML and yield (pynvml, handle). Raises _NoGpu."""
    try:
        import pynvml as nvml
    except ImportError:
        raise _NoGpu("the package nvidia-ml-py is not installed") from None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise _NoGpu(f"NVML does not start: {error}") from None
    try:
        try:
            handle = _handle(nvml)
        except nvml.NVMLError as error:
            raise _NoGpu(f"NVML sees no such GPU: {error}") from None
        yield nvml, handle
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _read(nvml: Any, name: str, query: Callable[[], Any]) -> Reading:
    """Return ``query()`` as a number; an NVML error or "not available" becomes null and a reason."""
    try:
        value = query()
    except nvml.NVMLError as error:
        return Reading(None, f"{name}: {error}")
    except AttributeError:  # an older nvidia-ml-py, or a driver without the call
        return Reading(None, f"{name}: this NVML has no such field")
    if not isinstance(value, int | float) or value == _NOT_AVAILABLE:
        return Reading(None, f"{name}: NVML reports {value!r}")
    return Reading(value)


def _text(nvml: Any, name: str, query: Callable[[], Any], reasons: dict[str, str]) -> str | None:
    try:
        value = query()
    except nvml.NVMLError as error:
        reasons[name] = f"{name}: {error}"
        return None
    return value.decode() if isinstance(value, bytes) else str(value)


def _numbers(nvml: Any, handle: Any) -> dict[str, Reading]:
    """One sample: used memory in bytes, SM clock in MHz, power in W (NVML gives mW), temperature in Celsius."""
    power = _read(nvml, "power_w", lambda: nvml.nvmlDeviceGetPowerUsage(handle))
    return {
        "used_bytes": _read(nvml, "used_bytes", lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used),
        "sm_clock_mhz": _read(nvml, "sm_clock_mhz", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
        "power_w": power if power.value is None else Reading(power.value / 1000),
        "temperature_c": _read(
            nvml, "temperature_c", lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
        ),
    }


def gpu_present() -> bool:
    """Return whether NVML sees a GPU that CUDA_VISIBLE_DEVICES does not hide: what ``engine=auto`` goes by."""
    try:
        with _device():
            return True
    except _NoGpu:
        return False


def visible() -> dict[str, str | None]:
    """Return the GPUs that CUDA may use: each one's name in CUDA_VISIBLE_DEVICES, and its UUID or null.

    Empty where NVML sees none. As CUDA does, the list ends before the first name that is no GPU.
    """
    found: dict[str, str | None] = {}
    try:
        with _device() as (nvml, _):
            given = os.environ.get("CUDA_VISIBLE_DEVICES")
            names = map(str, range(nvml.nvmlDeviceGetCount())) if given is None else map(str.strip, given.split(","))
            for name in names:
                try:
                    handle = _named(nvml, name)
                except nvml.NVMLError:
                    break
                found[name] = _text(nvml, "uuid", partial(nvml.nvmlDeviceGetUUID, handle), {})
    except _NoGpu:
        pass
    return found


def describe() -> Gpu:
    """Return what NVML says of the GPU; without one, every field is null and ``reasons["gpu"]`` says why."""
    reasons: dict[str, str] = {}
    try:
        with _device() as (nvml, handle):
            total = _read(nvml, "total_bytes", lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total)
            used = _read(nvml, "used_bytes", lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used)
            mig = _read(nvml, "mig", lambda: nvml.nvmlDeviceGetMigMode(handle)[0])
            for name, reading in (("total_bytes", total), ("used_bytes", used), ("mig", mig)):
                if reading.reason is not None:
                    reasons[name] = reading.reason
            return Gpu(
                name=_text(nvml, "name", lambda: nvml.nvmlDeviceGetName(handle), reasons),
                uuid=_text(nvml, "uuid", lambda: nvml.nvmlDeviceGetUUID(handle), reasons),
                driver=_text(nvml, "driver", nvml.nvmlSystemGetDriverVersion, reasons),
                total_bytes=None if total.value is None else int(total.value),
                used_bytes=None if used.value is None else int(used.value),
                mig=None if mig.value is None else bool(mig.value),
                reasons=reasons,
            )
    except _NoGpu as error:
        return Gpu(reasons={"gpu": str(error)})


def used_bytes() -> Reading:
    """Return the bytes in use on the device, by whatever process; null and a reason where NVML does not say."""
    try:
        with _device() as (nvml, handle):
            return _numbers(nvml, handle)["used_bytes"]
    except _NoGpu as error:
        return Reading(None, str(error))


def summarise(samples: list[dict[str, Reading]]) -> Samples:
    """Reduce samples to one row. A field that was never readable is null with the last reason given for it."""
    how: dict[str, Callable[[list[float]], float]] = {
        "used_bytes": max,
        "sm_clock_mhz": statistics.median,
        "power_w": statistics.fmean,
        "temperature_c": max,
    }
    values: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    for name, reduce in how.items():
        readings = [sample[name] for sample in samples]
        known = [reading.value for reading in readings if reading.value is not None]
        if known:
            values[name] = int(reduce(known)) if name == "used_bytes" else float(reduce(known))
        else:
            reasons[name] = (readings[-1].reason if readings else None) or f"{name}: no sample was taken"
    return Samples(n=len(samples), reasons=reasons, **values)


class Sampler:
    """Samples the GPU on a thread of its own between ``__enter__`` and ``__exit__``; read ``result`` afterwards.

    Never raises for what NVML lacks: ``result`` then has n = 0 and the reason. The period is in seconds.
    """

    def __init__(self, period_s: float = 0.1) -> None:
        self._period_s = period_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nvml-sampler", daemon=True)
        self._samples: list[dict[str, Reading]] = []
        self._failure: str | None = None

    def _run(self) -> None:
        try:
            with _device() as (nvml, handle):
                self._samples.append(_numbers(nvml, handle))
                while not self._stop.wait(self._period_s):
                    self._samples.append(_numbers(nvml, handle))
        except _NoGpu as error:
            self._failure = str(error)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def result(self) -> Samples:
        """The samples so far, reduced by ``summarise``."""
        if self._failure is not None:
            return Samples(n=0, reasons={"gpu": self._failure})
        return summarise(list(self._samples))
