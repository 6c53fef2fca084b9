"""NVML with a stand-in driver: every way of not answering becomes null and a reason."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from artifact.engines import nvml


class NVMLError(Exception):
    pass


class FakeNvml:
    """The part of pynvml that is used; ``broken`` maps a call to what it raises or returns instead."""

    NVMLError = NVMLError
    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0

    def __init__(self, **broken: Any) -> None:
        self.broken = broken
        self.open = 0
        self.asked: list[object] = []

    def _answer(self, call: str, value: Any) -> Any:
        instead = self.broken.get(call, value)
        if isinstance(instead, Exception):
            raise instead
        return instead

    def nvmlInit(self) -> None:
        self._answer("init", None)
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> object:
        self.asked.append(index)
        return self._answer("handle", "h")

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> object:
        self.asked.append(uuid)
        return self._answer("handle", "h")

    def nvmlDeviceGetMemoryInfo(self, handle: object) -> Any:
        return self._answer("memory", SimpleNamespace(used=7 * 2**30, total=140 * 2**30))

    def nvmlDeviceGetPowerUsage(self, handle: object) -> Any:
        return self._answer("power", 350_500)

    def nvmlDeviceGetClockInfo(self, handle: object, kind: int) -> Any:
        return self._answer("clock", 1980)

    def nvmlDeviceGetTemperature(self, handle: object, kind: int) -> Any:
        return self._answer("temperature", 41)

    def nvmlDeviceGetMigMode(self, handle: object) -> Any:
        return self._answer("mig", (0, 0))

    def nvmlDeviceGetName(self, handle: object) -> Any:
        return self._answer("name", "NVIDIA H200")

    def nvmlDeviceGetUUID(self, handle: object) -> Any:
        return self._answer("uuid", b"GPU-1234")

    def nvmlSystemGetDriverVersion(self) -> Any:
        return self._answer("driver", "580.95.05")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def make(**broken: Any) -> FakeNvml:
        driver = FakeNvml(**broken)
        monkeypatch.setitem(sys.modules, "pynvml", driver)
        return driver

    return make


def test_describe_and_close(fake: Any) -> None:
    driver = fake()
    gpu = nvml.describe()
    assert (gpu.name, gpu.uuid, gpu.driver, gpu.mig) == ("NVIDIA H200", "GPU-1234", "580.95.05", False)
    assert (gpu.total_bytes, gpu.used_bytes, gpu.reasons) == (140 * 2**30, 7 * 2**30, {})
    assert nvml.gpu_present()
    assert nvml.used_bytes() == (7 * 2**30, None)
    assert driver.open == 0


def test_no_driver(fake: Any) -> None:
    fake(init=NVMLError("Driver Not Loaded"))
    assert not nvml.gpu_present()
    gpu = nvml.describe()
    assert gpu.name is None
    assert gpu.used_bytes is None
    assert "Driver Not Loaded" in gpu.reasons["gpu"]
    value, reason = nvml.used_bytes()
    assert value is None
    assert "Driver Not Loaded" in str(reason)
    with nvml.Sampler(period_s=0.001) as sampler:
        pass
    assert sampler.result.n == 0
    assert "Driver Not Loaded" in sampler.result.reasons["gpu"]


def test_package_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert not nvml.gpu_present()
    assert "nvidia-ml-py" in nvml.describe().reasons["gpu"]


@pytest.mark.parametrize(
    ("instead", "said"),
    [
        (NVMLError("Insufficient Permissions"), "Insufficient Permissions"),  # MIG inside a container
        (NVMLError("Not Supported"), "Not Supported"),  # unified memory
        (SimpleNamespace(used=None, total=None), "None"),
        (SimpleNamespace(used=2**64 - 1, total=2**64 - 1), "18446744073709551615"),
        (SimpleNamespace(used="[N/A]", total="[N/A]"), "[N/A]"),
    ],
)
def test_memory_unreadable_is_null_with_a_reason(fake: Any, instead: object, said: str) -> None:
    driver = fake(memory=instead)
    gpu = nvml.describe()
    assert gpu.name == "NVIDIA H200"
    assert gpu.used_bytes is None
    assert gpu.total_bytes is None
    assert said in gpu.reasons["used_bytes"]
    with nvml.Sampler(period_s=0.001) as sampler:
        pass
    assert sampler.result.used_bytes is None
    assert said in sampler.result.reasons["used_bytes"]
    assert sampler.result.power_w == 350.5
    assert driver.open == 0


def test_zero_is_a_value(fake: Any) -> None:
    fake(memory=SimpleNamespace(used=0, total=1), power=0)
    assert nvml.describe().used_bytes == 0
    with nvml.Sampler(period_s=0.001) as sampler:
        pass
    assert sampler.result.power_w == 0.0
    assert sampler.result.reasons == {}


def test_mig_on_and_unsupported(fake: Any) -> None:
    fake(mig=(1, 1))
    assert nvml.describe().mig is True
    fake(mig=NVMLError("Not Supported"))
    gpu = nvml.describe()
    assert gpu.mig is None
    assert "Not Supported" in gpu.reasons["mig"]


@pytest.mark.parametrize(("visible", "asked"), [("3,1", 3), ("GPU-77,GPU-1", "GPU-77"), (" 2 ", 2)])
def test_cuda_visible_devices_picks_the_gpu(
    fake: Any, monkeypatch: pytest.MonkeyPatch, visible: str, asked: object
) -> None:
    driver = fake()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert nvml.gpu_present()
    assert driver.asked == [asked]


@pytest.mark.parametrize("visible", ["", "-1"])
def test_hidden_gpu_is_no_gpu(fake: Any, monkeypatch: pytest.MonkeyPatch, visible: str) -> None:
    fake()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert not nvml.gpu_present()
    assert "CUDA_VISIBLE_DEVICES" in nvml.describe().reasons["gpu"]


def test_no_such_device(fake: Any) -> None:
    driver = fake(handle=NVMLError("Invalid Argument"))
    assert not nvml.gpu_present()
    assert driver.open == 0


def test_summarise_takes_peak_median_mean() -> None:
    def sample(used: float, clock: float, power: float | None, heat: float) -> dict[str, nvml.Reading]:
        return {
            "used_bytes": nvml.Reading(used),
            "sm_clock_mhz": nvml.Reading(clock),
            "power_w": nvml.Reading(power, None if power is not None else "power_w: gone"),
            "temperature_c": nvml.Reading(heat),
        }

    row = nvml.summarise([sample(1, 100, 10, 50), sample(5, 900, None, 70), sample(3, 200, 30, 60)])
    assert (row.n, row.used_bytes, row.sm_clock_mhz, row.power_w, row.temperature_c) == (3, 5, 200.0, 20.0, 70.0)
    assert row.reasons == {}
    assert "no sample" in nvml.summarise([]).reasons["power_w"]
