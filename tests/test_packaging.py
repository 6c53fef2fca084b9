"""One version of everything everywhere, hashed lists, and a wheel that holds what it needs."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from artifact import __version__
from artifact.config import load

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
LISTS = ["base", "dev", "gpu"]


def requirements(name: str) -> str:
    return (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")


def pins(name: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for package, version in re.findall(r"^([a-z0-9-]+)(?:\[[^\]]*\])?==(\S+)", requirements(name), re.M):
        found.setdefault(package, set()).add(version)
    return found


def test_one_version_of_vllm_and_torch() -> None:
    extra = dict(requirement.split("==") for requirement in PROJECT["project"]["optional-dependencies"]["gpu"])
    vllm, torch = extra["vllm"], extra["torch"]
    assert load().engine.vllm_version == vllm
    assert pins("gpu")["vllm"] == {vllm}
    assert pins("gpu")["torch"] == {torch}
    assert f"ARG VLLM_VERSION={vllm}\n" in DOCKERFILE
    assert f"ARG TORCH_VERSION={torch}\n" in DOCKERFILE
    assert re.search(rf"^ARG BASE=vllm/vllm-openai:v{re.escape(vllm)}@sha256:[0-9a-f]{{64}}$", DOCKERFILE, re.M)
    assert re.search(r"^ARG BASE\n.*base\.name=\"\$\{BASE\}\"", DOCKERFILE, re.M | re.S)
    evaluation = (ROOT / "ARTIFACT.md").read_text(encoding="utf-8")
    assert f"vLLM {vllm}" in evaluation
    assert f"torch {torch}" in evaluation
    assert f"`vllm/vllm-openai:v{vllm}`" in evaluation
    shipped = list((ROOT / "paper_figures" / "data").glob("*/provenance.json"))
    assert shipped
    for file in shipped:
        for entry in json.loads(file.read_text(encoding="utf-8")):
            if entry["evidence"] != ["simulated"]:
                assert (entry["packages"]["vllm"], entry["packages"]["torch"]) == (vllm, torch), file


def test_one_version_of_ours() -> None:
    assert PROJECT["project"]["version"] == __version__
    assert f'image.version="{__version__}"' in DOCKERFILE
    assert f"version: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", LISTS)
def test_every_requirement_is_pinned_and_hashed(name: str) -> None:
    text = requirements(name)
    entries = re.split(r"\n(?=\S)", "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#")))
    assert len(entries) > 50
    for entry in entries:
        assert re.match(r"[a-z0-9-]+(\[[^\]]*\])?==\S+", entry), entry
        assert "--hash=sha256:" in entry, entry
    assert "://" not in text


def test_the_lists_agree() -> None:
    gpu = pins("gpu")
    for name in ("base", "dev"):
        differing = {
            package: versions for package, versions in pins(name).items() if versions != gpu.get(package, versions)
        }
        assert differing == {}
    assert set(pins("base")) <= set(pins("dev"))


def test_the_lists_hold_what_pyproject_asks_for() -> None:
    wanted: dict[str, list[str]] = {"base": PROJECT["project"]["dependencies"]}
    wanted |= {extra: PROJECT["project"]["optional-dependencies"][extra] for extra in ("dev", "gpu")}
    for name, needed in wanted.items():
        names = {re.split(r"[<>=\[ ]", requirement)[0] for requirement in needed}
        assert names <= set(pins(name)), name


def test_every_package_is_listed() -> None:
    there = {".".join(file.parent.relative_to(ROOT).parts) for file in (ROOT / "artifact").rglob("__init__.py")}
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == there | {"artifact.conf"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project as a wheel, built offline from a copy: setuptools writes into the folder that it builds."""
    copy, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    names = ["artifact", "conf", "pyproject.toml", "README.md", "LICENSE"]
    subprocess.run(["cp", "-r", *(str(ROOT / name) for name in names), str(copy)], check=True)
    code = f"import setuptools.build_meta as build; build.build_wheel({str(out)!r})"
    environment = os.environ | {"PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=copy, capture_output=True, text=True, check=False, env=environment
    )
    if "No module named 'setuptools'" in done.stderr:
        pytest.skip("setuptools is not installed")
    assert done.returncode == 0, done.stderr
    (file,) = out.glob("*.whl")
    return file


def test_a_wheel_works_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
        archive.extractall(tmp_path)
    for file in [*(ROOT / "conf").rglob("*.yaml"), *(ROOT / "artifact").rglob("*.json")]:
        place = Path("artifact") / file.relative_to(ROOT) if file.parts[-2] != "calibrations" else None
        assert str(place or file.relative_to(ROOT)) in held
    templates = [str(file.relative_to(ROOT)) for file in (ROOT / "artifact").glob("*/templates/*")]
    assert templates
    assert set(templates) <= held
    assert not any(name.startswith(("tests/", "conf/")) for name in held)
    code = "import artifact.config as c; print(c.CONF_DIR); print(c.load(['mode=full']).mode.name)"
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.split() == [str(tmp_path / "artifact" / "conf"), "FULL"]


def test_a_wheel_registers_the_recorder_with_vllm(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt")]
        text = archive.read(name).decode()
        assert "artifact/engines/recorder.py" in archive.namelist()
    assert "[vllm.stat_logger_plugins]\nartifact_recorder = artifact.engines.recorder:Recorder\n" in text


@pytest.fixture
def packages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("packages", ROOT / "docker" / "packages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_image_keeps_what_it_has(packages: ModuleType) -> None:
    text = (
        "# made by\n"
        'a-b==1 \\\n    --hash=sha256:1 \\\n    --hash=sha256:2\n    # via c\n'
        'numpy==2 ; python_version < "3.13" \\\n    --hash=sha256:3\n'
        "new[x]==4 \\\n    --hash=sha256:4\n"
    )  # fmt: skip
    missing = packages.missing
    assert missing(text, ["A_B", "NumPy"]) == "new[x]==4 \\\n    --hash=sha256:4\n"
    assert missing(text, ["numpy", "new"]) == "a-b==1 \\\n    --hash=sha256:1 \\\n    --hash=sha256:2\n"
    entry = re.compile(r"^\S+==", re.M)
    assert entry.findall(missing(requirements("base"), [])) == entry.findall(requirements("base"))
    assert missing(requirements("base"), list(pins("base"))) == "\n"


def test_what_the_image_has(packages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package from a local wheel has its version; the first on the path counts, the system's own do not."""
    for place, name, version in [
        ("local", "vLLM", "0.21.0+cu130"),
        ("local", "blinker_x", "1.9"),
        ("later", "blinker-x", "1.8"),
        ("system", "PyJWT", "2.3"),
    ]:
        folder = tmp_path / place / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
        (folder / "direct_url.json").write_text('{"url": "file:///gone.whl", "archive_info": {}}', encoding="utf-8")
    monkeypatch.setattr(packages, "SYSTEM", tmp_path / "system")
    present = packages.installed([str(tmp_path / place) for place in ("local", "later", "system")])
    assert present == {"vllm": "0.21.0+cu130", "blinker-x": "1.9"}
    assert packages.differing(present, {"vllm": "0.21.0", "torch": ""}) == []
    assert packages.differing(present, {"vllm": "", "torch": "2.11.0"}) == [
        "the base image has vllm 0.21.0, wanted: (none)",
        "the base image has torch (none), wanted: 2.11.0",
    ]


def test_the_image_runs_as_a_real_user_with_its_caches_in_a_volume() -> None:
    assert re.search(r"^USER \$\{UID\}$", DOCKERFILE, re.M)
    assert re.search(r"^ARG UID=1000$", DOCKERFILE, re.M)
    for name in ("HOME", "VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "HF_HOME"):
        assert re.search(rf"\b{name}=/cache/", DOCKERFILE), name
    assert DOCKERFILE.index("COPY requirements/base.txt") < DOCKERFILE.index("COPY . ")


@pytest.mark.parametrize("name", ["Makefile", "docker/stand_in.sh"])
def test_every_build_argument_is_one_of_the_dockerfile(name: str) -> None:
    """Docker only warns of an argument that no ARG takes."""
    given = set(re.findall(r"--build-arg (\w+)=", (ROOT / name).read_text(encoding="utf-8")))
    assert given
    assert given <= set(re.findall(r"^ARG (\w+)", DOCKERFILE, re.M))
