"""Overrides in; what the machine can do, what a mode comes to, and the browser on the runs, out."""

import os
import subprocess

from artifact.commands.common import Answer, say
from artifact.config import load


def doctor(overrides: list[str]) -> Answer:
    """Return the checks of the machine; exit code 3 where one fails."""
    from artifact.study.doctor import doctor

    checks = doctor(load(overrides))
    return {
        "checks": [check._asdict() for check in checks],
        "exit_code": 3 if any(c.ok is False for c in checks) else 0,
    }


def explain(overrides: list[str]) -> Answer:
    """Return what the configured mode resolves to, and what each batch would run."""
    from artifact.graphs.explain import explain

    return explain(load(overrides))


def ui(overrides: list[str]) -> Answer:
    """Serve MLflow's UI until it is stopped."""
    from artifact.study.pages import ENVIRONMENT, runs_page, ui_command

    config = load(overrides)
    command = ui_command(config)
    say(" ".join(command))
    say(f"the runs: {runs_page(config)}")
    return {"exit_code": subprocess.run(command, check=False, env=ENVIRONMENT | os.environ).returncode}
