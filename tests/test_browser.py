"""What people look at, in headless Chromium: the report, wide and narrow, light and dark, and MLflow's pages.

Skipped where there is no browser: Debian and Ubuntu have the package ``chromium``.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from artifact.cli import main
from artifact.config import load
from artifact.engines.sim_engine import SimEngine
from artifact.plots import draw
from artifact.schema import Config, Evidence
from artifact.study.pages import ENVIRONMENT, runs_page, ui_command
from artifact.study.plan import plan
from artifact.study.run import run
from artifact.study.store import Store, read_cells

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: it is on requirements/dev")

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox",  # a container's root has no other way
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SOON_MS = 120_000  # where two cores are shared by many tests; nothing waits longer than it has to


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip(
            f"no browser: none of {', '.join(BROWSERS)} is installed; on Debian and Ubuntu: apt install chromium"
        )
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def config(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Config:
    """The configuration of a simulated smoke study with its report, figures and tracker."""
    results = tmp_path_factory.mktemp("results")
    given = [f"executor.results={results}"]
    planned = plan(["engine=sim", "workload.duration_s=4", *given], Evidence.SIMULATED)
    run(planned, Store(results / "smoke"), lambda log: SimEngine())
    draw("fig02_tpot_memory", results, results / "smoke" / "figures")
    for command in ("report", "sync"):
        assert main([command, *given]) == 0
    return load(given)


class Seen:
    """A page, and what went wrong on it: errors of its console, and requests to anywhere but ``own``."""

    def __init__(self, browser: Any, own: str, **context: Any) -> None:
        self.context = browser.new_context(**context)
        self.page = self.context.new_page()
        self.page.set_default_timeout(SOON_MS)
        self.errors: list[str] = []
        self.elsewhere: list[str] = []
        self.page.on("console", lambda line: self.errors.append(line.text) if line.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on(
            "request",
            lambda asked: None if asked.url.startswith((own, "data:", "blob:")) else self.elsewhere.append(asked.url),
        )

    def __enter__(self) -> "Seen":
        return self

    def __exit__(self, *ended: object) -> None:
        self.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390, 360])
def test_the_report(browser: Any, config: Config, width: int, scheme: str) -> None:
    file = Path(config.executor.results) / "smoke" / "report.html"
    viewport = {"width": width, "height": 844}
    with Seen(browser, file.as_uri(), viewport=viewport, color_scheme=scheme, offline=True) as seen:
        page = seen.page
        page.goto(file.as_uri())
        assert page.locator("h1").inner_text() == "Study smoke"
        assert page.locator(".badge", has_text="simulated").count() > 0
        # The page never scrolls sideways; tables and figures that are wider scroll in themselves.
        assert page.evaluate("document.documentElement.scrollWidth") == width
        inner = page.locator(".scroll").evaluate_all(
            "all => all.filter(one => one.scrollWidth > one.clientWidth).length"
        )
        assert inner > 0
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert background == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 23, 27)")
        widths = page.locator("figure img").evaluate_all("all => all.map(image => image.naturalWidth)")
        assert len(widths) >= 2
        assert all(each > 100 for each in widths)
        page.locator("summary").first.click()
        assert page.locator("details[open] table").first.is_visible()
        page.locator("nav a", has_text="Repeat it").click()
        assert "artifact run study=smoke engine=sim" in page.locator("#repeat pre").inner_text()
        assert (seen.errors, seen.elsewhere) == ([], [])


def test_the_report_on_paper(browser: Any, config: Config) -> None:
    file = Path(config.executor.results) / "smoke" / "report.html"
    with Seen(browser, file.as_uri(), viewport={"width": 794, "height": 1123}, color_scheme="dark") as seen:
        seen.page.goto(file.as_uri())
        seen.page.emulate_media(media="print")
        assert not seen.page.locator("nav").is_visible()
        assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert seen.page.locator("details table").first.is_visible()  # nothing is hidden behind a click
        assert seen.page.pdf(format="A4").startswith(b"%PDF")


@pytest.fixture(scope="module")
def port(config: Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Where MLflow's pages are served, by the command that ``artifact ui`` runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    log = tmp_path_factory.mktemp("ui") / "log"
    with log.open("w") as file:
        server = subprocess.Popen(
            ui_command(config, port), stdout=file, stderr=file, env=ENVIRONMENT | os.environ, start_new_session=True
        )
        try:
            _wait_for(f"http://127.0.0.1:{port}/health", server, log)
            yield port
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait()


def _wait_for(address: str, server: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + SOON_MS / 1000
    while server.poll() is None and time.monotonic() < end:
        try:
            with urllib.request.urlopen(address, timeout=5):  # noqa: S310
                return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"MLflow did not start: {log.read_text()[-2000:]}")


def test_mlflow_shows_the_runs_their_metrics_and_the_figures(browser: Any, config: Config, port: int) -> None:
    cells = read_cells(Path(config.executor.results) / "smoke").set_index(["arm", "workload"])
    own = f"http://127.0.0.1:{port}"
    with Seen(browser, own, viewport={"width": 1400, "height": 900}) as seen:
        page = seen.page
        page.goto(runs_page(config, port))
        study = page.get_by_role("link", name="smoke", exact=True).first
        study.wait_for()
        assert "15 matching runs" in page.locator("body").inner_text()  # the study and its cells
        study.click()
        child = page.get_by_role("link", name=re.compile(r"^\S+ churn 0")).first
        child.wait_for()
        at, (arm, workload, _) = page.url.split("?")[0], child.inner_text().split()
        child.click()
        page.get_by_text("tpot_p50_ms", exact=True).wait_for()
        shown = page.locator("body").inner_text()
        assert str(cells.loc[(arm, workload), "tpot_p50_ms"]) in shown
        assert ": simulated" in shown  # the tag
        page.goto(f"{at}/artifacts/figures/fig02_tpot_memory.png")
        page.wait_for_function(
            "[...document.images].some(one => one.src.startsWith('blob:') && one.naturalWidth > 500)"
        )
        assert "fig02_tpot_memory.pdf" in page.locator("body").inner_text()
        assert seen.elsewhere == []
