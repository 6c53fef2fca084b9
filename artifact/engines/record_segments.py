"""Frames in, segment files of a bounded folder out: rotated, the oldest deleted to make room."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from artifact.workloads.record_format import MAGIC, SUFFIX

_PARTS = 16  # segments that the limit holds: so much of the recording goes at once when room is made


class Segments:
    """Appends frames to the files of ``folder`` that one process and engine writes; others may write beside it.

    All segments of the folder together, whoever wrote them, stay within ``limit_bytes`` after every write, as long as
    one segment's first frame and the frame to write fit into it: the segment written longest ago is deleted first.
    Every file begins with ``first()``, the frame of the server's settings. Raises OSError where the disk does; what
    was written of the frame in hand is then taken back.
    """

    def __init__(self, folder: Path, name: str, limit_bytes: int, first: Callable[[], bytes]) -> None:
        self._folder = folder
        self._name = name
        self._limit = limit_bytes
        self._segment_bytes = max(limit_bytes // _PARTS, 1)
        self._first = first
        self._number = 0
        self._path: Path | None = None
        self._file = -1
        self._size = 0

    def write(self, frame: bytes) -> None:
        """Append ``frame``, in a new file where the current one is full or someone has deleted it."""
        if self._file < 0 or self._size + len(frame) > self._segment_bytes or os.fstat(self._file).st_nlink == 0:
            self._next(len(frame))
        else:
            self._make_room(len(frame))
        self._append(frame)

    def close(self) -> None:
        """Close the current file; a later write opens another."""
        if self._file >= 0:
            os.close(self._file)
        self._file, self._path, self._size = -1, None, 0

    def _next(self, more: int) -> None:
        self.close()
        start = MAGIC + self._first()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._make_room(len(start) + more)
        while self._file < 0:
            self._number += 1
            path = self._folder / f"{self._name}-{self._number:06d}{SUFFIX}"
            with suppress(FileExistsError):  # the process id of a container is the same at each start
                self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
                self._path = path
        self._append(start)

    def _append(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)

    def _make_room(self, more: int) -> None:
        there: list[tuple[int, str, int]] = []
        for entry in os.scandir(self._folder):
            if entry.name.endswith(SUFFIX):
                with suppress(FileNotFoundError):  # another writer makes room as well
                    status = entry.stat()
                    there.append((status.st_mtime_ns, entry.name, status.st_size))
        total = sum(size for _, _, size in there)
        for _, name, size in sorted(there):
            if total + more <= self._limit:
                break
            if self._path is None or name != self._path.name:
                (self._folder / name).unlink(missing_ok=True)
                total -= size


def segment_name(pid: int, engine: int) -> str:
    """Return the part of a file's name that all segments of a writer share; names sort by the time of the start."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{pid}-e{engine}"
