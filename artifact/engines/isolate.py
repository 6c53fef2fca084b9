"""An engine class in; the same engine in a process of its own, one per launch, whose end frees the GPU for sure, out.

The process is forked from a server that has imported the engine's modules once (``preload``) and never touches CUDA.
It leads a process group, so that whatever the engine starts ends with it; it ends that group itself if the parent
dies. What it prints goes to the launch's log.
"""

import faulthandler
import multiprocessing
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self, cast

from artifact.engines.base import Engine
from artifact.errors import ArtifactError, CellFailed
from artifact.records import Launch, LaunchFacts, Measurement, Schedule

CLOSE_LIMIT_S = 30.0
# Beyond the limit that the engine keeps itself: time to give up in order and to send the records.
GRACE_S = 30.0
_LOG_TAIL_BYTES = 65536

_OUT_OF_MEMORY = re.compile(
    r"torch\.(?:cuda\.)?OutOfMemoryError|CUDA out of memory|CUDA error: out of memory"
    r"|No available memory for the cache blocks|larger than the available KV cache memory"
)
_MODE_REFUSED = re.compile(r"ValueError: CUDAGraphMode\.\w+ is not supported[^\n]*")


class Isolated:
    """``engines.base.Engine`` seen from the parent; a context manager that closes.

    Failures are CellFailed: the engine's own as they are; any other exception as ``engine_error`` (``oom`` where the
    text or the log says so; ``refused`` for a ValueError at the start, which is how vLLM turns a configuration down);
    ``timeout`` after the limit and a grace; ``engine_error`` when the process dies; ``skipped`` when it had ended in
    an earlier cell. Only a failure that the engine raised as CellFailed leaves it running. InputError and
    EnvironmentLacks are raised as they are: no other cell would fare better.
    """

    def __init__(
        self,
        engine_class: type[Engine],
        preload: Sequence[str],
        log_path: Path,
        grace_s: float = GRACE_S,
        close_limit_s: float = CLOSE_LIMIT_S,
    ) -> None:
        self.evidence = engine_class.evidence
        self._engine_class = engine_class
        self._log_path = log_path
        self._grace_s = grace_s
        self._close_limit_s = close_limit_s
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(preload))  # of effect until the server runs
        self._wait_s = 0.0  # that the engine may spend before a cell
        self._process: Any = None  # ForkServerProcess
        self._pipe: Connection | None = None
        self._log_start = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The process, and its group; None when none runs."""
        return None if self._process is None else self._process.pid

    def start(self, launch: Launch) -> LaunchFacts:
        """See ``Engine.start``. Raises CellFailed, with the process ended whatever it was."""
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        engine = launch.config.engine
        self._wait_s = 0.0 if engine.quiet_launch_us is None else engine.quiet_wait_s
        self._pipe, child_end = self._context.Pipe()
        self._process = self._context.Process(
            target=_serve, args=(child_end, self._engine_class, str(self._log_path)), daemon=False
        )
        self._process.start()
        child_end.close()
        try:
            limit_s = engine.start_limit_s + self._grace_s
            return cast("LaunchFacts", self._request("start", launch, limit_s=limit_s))
        except BaseException:
            self._kill()
            raise

    def measure(self, schedule: Schedule, limit_s: float, heavy_probe: bool = False) -> Measurement:
        """See ``Engine.measure``."""
        whole_s = limit_s + self._wait_s + self._grace_s
        return cast("Measurement", self._request("measure", schedule, limit_s, heavy_probe, limit_s=whole_s))

    def close(self) -> None:
        """Ask the engine to end, wait ``close_limit_s`` seconds, then kill what is left of its process group."""
        if self._process is None or self._pipe is None:
            return
        with suppress(OSError):
            self._pipe.send(("close", ()))
            wait([self._process.sentinel], self._close_limit_s)
        self._kill()

    def _request(self, name: str, *arguments: object, limit_s: float) -> object:
        if self._pipe is None:
            raise CellFailed("skipped", "the engine had ended in an earlier cell of this launch")
        self._log_start = self._log_path.stat().st_size if self._log_path.exists() else 0
        try:
            self._pipe.send((name, arguments))
            if not wait([self._pipe, self._process.sentinel], limit_s):
                self._kill()
                raise CellFailed("timeout", f"{name} did not end within {limit_s:g} s: the engine was killed")
            if not self._pipe.poll():
                self._died(name)
            answer, payload = self._pipe.recv()
        except (EOFError, ConnectionError):
            self._died(name)
        except KeyboardInterrupt:
            self._kill()  # it is busy and would not hear a request to close
            raise
        if answer == "result":
            return payload
        if answer == "cell_failed":
            raise CellFailed(*payload)
        self._kill()
        if answer == "artifact_error":
            raise payload
        status, reason = self._classified(name, *payload)
        raise CellFailed(status, reason)

    def _classified(self, name: str, reason: str, is_value_error: bool) -> tuple[str, str]:
        tail = self._log_tail()
        for text in (reason, tail):
            if match := _OUT_OF_MEMORY.search(text):
                return "oom", reason if text is reason else f"{match[0]} (in {self._log_path.name}); {reason}"
        if name == "start" and (match := _MODE_REFUSED.search(tail)):
            return "refused", match[0]
        return ("refused" if name == "start" and is_value_error else "engine_error"), reason

    def _died(self, name: str) -> NoReturn:
        self._process.join(self._close_limit_s)
        code = self._process.exitcode
        self._kill()
        ending = f"ended by signal {-code}" if code is not None and code < 0 else f"exited with code {code}"
        status, reason = self._classified(name, f"engine process {ending} during {name}; see its log", False)
        raise CellFailed(status, reason)

    def _log_tail(self) -> str:
        if not self._log_path.exists():
            return ""
        with self._log_path.open("rb") as log:
            log.seek(max(self._log_start, self._log_path.stat().st_size - _LOG_TAIL_BYTES))
            return log.read().decode(errors="replace")

    def _kill(self) -> None:
        process, pipe = self._process, self._pipe
        self._process = self._pipe = None
        if process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # also what an engine that died has left behind
        process.kill()  # it may not lead its group yet
        process.join(CLOSE_LIMIT_S)
        if process.exitcode is not None:
            process.close()
        if pipe is not None:
            pipe.close()


def _serve(pipe: Connection, engine_class: type[Engine], log_path: str) -> None:
    """Answer the parent's requests until it asks to close or is gone."""
    os.setsid()
    # What the engine forks must not hold our end: the parent would wait for an answer after our death.
    os.register_at_fork(after_in_child=pipe.close)
    _redirect_output(log_path)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    engine: Engine | None = None
    while True:
        try:
            name, arguments = pipe.recv()
        except EOFError:  # the parent is gone: so must be all that the engine has started, whether it can close or not
            os.killpg(0, signal.SIGKILL)
            return
        if name == "close":
            if engine is not None:
                engine.close()
            return
        try:
            if engine is None:
                engine = engine_class()
            answer = ("result", getattr(engine, name)(*arguments))
        except CellFailed as failure:
            answer = ("cell_failed", (failure.status, failure.reason))
        except ArtifactError as error:
            answer = ("artifact_error", error)
        except Exception as error:  # the boundary of a cell: whatever it was becomes a row
            traceback.print_exc()
            first_line = next(iter(str(error).splitlines()), "")
            answer = ("error", (f"{type(error).__name__}: {first_line}", isinstance(error, ValueError)))
        sys.stdout.flush()
        sys.stderr.flush()
        pipe.send(answer)


def _redirect_output(log_path: str) -> None:
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    faulthandler.enable()  # a crash in native code leaves its Python stack in the log


def _end_with_parent() -> None:
    # The operating system's parent is the fork server, which outlives a killed client: PR_SET_PDEATHSIG would not do.
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.killpg(0, signal.SIGKILL)
