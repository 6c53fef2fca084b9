"""What a live server's recorder keeps, bounds and survives."""

import errno
import json
import os
import tempfile
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as profile
from hypothesis import strategies as st

from artifact.engines import record_segments
from artifact.engines.record_segments import Segments
from artifact.engines.record_writer import MIB, RecordWriter
from artifact.errors import InputError
from artifact.workloads import recordings
from artifact.workloads.record_format import DONE, LOST, MAGIC, META, STEP, columns_of, frames, pack_json, pack_rows
from tests.record_support import BASE_S, Finished, Iteration, Scheduler, record, settings, step, writer

ENTRY_GROUP = "vllm.stat_logger_plugins"
FIRST_FRAME = pack_json(META, {"writer": {"pid": 1, "engine": 0, "started_s": 0.0}, "server": {}})
SLOW_FOLDERS = profile(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def bodies(folder: Path) -> list[bytes]:
    """All frames of a folder but the first of each file, in the order of the files."""
    return [body for file in sorted(folder.iterdir()) for _, body in frames(file.read_bytes())[0][1:]]


# What is kept


def test_steps_and_requests_come_back(tmp_path: Path) -> None:
    calls = [
        step(1.0, 5, "NONE", sampled=0, running=1),
        step(1.5, 100, "FULL", 104, running=100),
        (Scheduler(3, 1, 2, 0.25, None), Iteration(BASE_S + 2.0, 3, [0.5], [Finished(1.5, 7, 4, 0.01, 2)])),
        (Scheduler(), None),  # idle: nothing ran
        (None, Iteration(BASE_S + 3.0, 1, [], [Finished(2.5, 9, 1)])),  # the step was told to another front end
    ]
    found = recordings.read(record(tmp_path / "rec", calls))
    steps = found.steps
    assert steps["t_s"].to_list() == [BASE_S + 1.0, BASE_S + 1.5, BASE_S + 2.0]
    assert steps["mode"].to_list() == [0, 2, -1]
    assert steps["num_tokens"].to_list() == [5, 100, -1]
    assert steps["padded_tokens"].to_list() == [5, 104, -1]
    assert steps["num_waiting"].to_list() == [0, 0, 3]
    assert steps["sampled_tokens"].to_list() == [0, 100, 3]
    done = found.finished
    assert done["arrival_s"].to_list() == [BASE_S + 0.5, BASE_S + 0.5]
    assert done[["prompt_tokens", "output_tokens", "cached_tokens"]].to_numpy().tolist() == [[7, 4, 2], [9, 1, 0]]
    assert done["tpot_s"].isna().to_list() == [False, True]  # one output token has no TPOT, and not one of 0
    assert found.first_tokens["arrival_s"].to_list() == [BASE_S + 1.5]
    assert found.servers == (settings(),)


def test_nothing_is_lost_between_the_threads(tmp_path: Path) -> None:
    recorder = RecordWriter(tmp_path, 8 * MIB, dict, lambda _: None, flush_s=1e-4)
    for at in range(20_000):
        recorder.add(*step(at / 1000, at, "NONE"))
    recorder.close()
    assert recordings.read(tmp_path).steps["num_tokens"].to_list() == list(range(20_000))


def test_what_cannot_be_kept_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("artifact.engines.record_writer._MOST_STEPS", 10)
    found = recordings.read(record(tmp_path, [step(at, 1, "FULL") for at in range(15)]))
    assert (len(found.steps), found.lost_rows) == (10, 5)


# The bound


@SLOW_FOLDERS
@given(
    sizes=st.lists(st.integers(1, 900), min_size=1, max_size=80),
    limit=st.integers(2048, 20_000),
    names=st.lists(st.sampled_from("ab"), min_size=80, max_size=80),
)
def test_a_folder_stays_within_its_limit_and_keeps_the_latest(sizes: list[int], limit: int, names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        writers = {each: Segments(folder, each, limit, lambda: FIRST_FRAME) for each in "ab"}
        written: dict[str, list[bytes]] = {"a": [], "b": []}
        for number, (size, who) in enumerate(zip(sizes, names, strict=False)):
            frame = pack_json(b"test", {"n": number, "of": "x" * size})
            writers[who].write(frame)
            written[who].append(frames(MAGIC + frame)[0][0][1])
            assert size_of(folder) <= limit
            assert written[who][-1] in bodies(folder)
        for who, each in writers.items():
            each.close()
            kept = [body for body in bodies(folder) if body in written[who]]
            assert kept == written[who][len(written[who]) - len(kept) :]


def test_a_file_that_someone_deleted_is_begun_again(tmp_path: Path) -> None:
    segments = Segments(tmp_path, "a", 10_000, lambda: FIRST_FRAME)
    segments.write(pack_json(LOST, {"rows": 1}))
    (file,) = tmp_path.iterdir()
    file.unlink()
    segments.write(pack_json(LOST, {"rows": 2}))
    segments.close()
    assert [json.loads(body) for body in bodies(tmp_path)] == [{"rows": 2}]


# What goes wrong


@SLOW_FOLDERS
@given(data=st.data())
def test_a_cut_file_counts_up_to_the_cut(data: st.DataObject) -> None:
    parts = [pack_rows(STEP, [BASE_S + n, 0, n, n, 1, 0, 0.0, 1] * (n + 1)) for n in range(4)]
    whole = MAGIC + FIRST_FRAME + b"".join(parts)
    cut = data.draw(st.integers(0, len(whole)))
    ends = [len(MAGIC + FIRST_FRAME)]
    for part in parts:
        ends.append(ends[-1] + len(part))
    found, after = frames(whole[:cut])
    assert len(found) == sum(end <= cut for end in ends)
    assert after == (cut - max([end for end in ends if end <= cut], default=len(MAGIC)) if cut >= len(MAGIC) else cut)


@SLOW_FOLDERS
@given(at=st.integers(0, 400), byte=st.integers(1, 255))
def test_a_damaged_byte_ends_a_file_and_nothing_else(at: int, byte: int) -> None:
    whole = MAGIC + FIRST_FRAME + pack_rows(STEP, [BASE_S, 0, 3, 3, 1, 0, 0.0, 1]) * 3
    damaged = bytearray(whole)
    damaged[at % len(whole)] ^= byte
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "a.rec"
        file.write_bytes(damaged)
        try:
            found = recordings.read(Path(name))
        except InputError:
            return
        assert found.steps["num_tokens"].to_list() == [3] * len(found.steps)
        assert len(found.steps) <= 3


def test_after_a_crash_the_rest_is_read_and_said(tmp_path: Path) -> None:
    for number in range(2):
        record(tmp_path / "rec", [step(number + at / 10, 1, "FULL") for at in range(5)])
    newest = max((tmp_path / "rec").iterdir(), key=lambda file: (file.stat().st_mtime_ns, file.name))
    newest.write_bytes(newest.read_bytes()[:-3])
    found = recordings.read(tmp_path / "rec")
    assert len(found.steps) == 5
    assert found.cut == (newest.name,)


class _FullDisk:
    """``os`` whose writes fail once ``room`` bytes are written, in the middle of one."""

    def __init__(self, room: int) -> None:
        self.room = room

    def __getattr__(self, name: str) -> object:
        return getattr(os, name)

    def write(self, file: int, data: memoryview) -> int:
        if self.room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = os.write(file, data[: self.room])
        self.room -= written
        return written


def test_a_full_disk_ends_the_recording_with_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("artifact.engines.record_writer._ROWS_A_FRAME", 10)
    monkeypatch.setattr(record_segments, "os", _FullDisk(2500))
    said: list[str] = []
    recorder = RecordWriter(tmp_path, MIB, settings, said.append, flush_s=1e6)
    for at in range(1000):
        recorder.add(*step(at, at, "FULL"))
    recorder.close()
    recorder.add(*step(0, 1, "FULL"))
    assert len(said) == 1
    assert "No space left on device" in said[0]
    assert not recorder.recording
    found = recordings.read(tmp_path)
    assert found.cut == ()  # half a frame was taken back
    assert 0 < len(found.steps) < 1000
    assert len(found.steps) % 10 == 0


def test_a_folder_that_is_a_file_ends_it_too(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "rec").write_text("")
    recorder = writer(tmp_path / "rec", said=said)
    recorder.add(*step(0, 1, "FULL"))
    recorder.close()
    assert len(said) == 1
    assert "rec" in said[0]


@pytest.mark.parametrize("odd", [SimpleNamespace(), step(0, 1, "FULL")[0].__class__(cudagraph_stats=SimpleNamespace())])
def test_statistics_of_another_vllm_end_it_and_raise_nothing(tmp_path: Path, odd: object) -> None:
    said: list[str] = []
    recorder = writer(tmp_path, said=said)
    for _ in range(3):
        recorder.add(odd, None)
    recorder.close()
    assert len(said) == 1
    assert "AttributeError" in said[0]


def test_values_that_no_column_holds_end_it(tmp_path: Path) -> None:
    said: list[str] = []
    recorder = writer(tmp_path, said=said)
    recorder.add(*step(0, 1 << 40, "FULL"))
    recorder.close()
    assert len(said) == 1
    assert "OverflowError" in said[0]


# Where there is none


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: None, "no such file or folder"),
        (lambda path: path.mkdir(), "holds no recording"),
        (lambda path: path.write_text("TIMESTAMP\n"), "holds no recording"),
        (os.mkfifo, "holds no recording"),
        (lambda path: path.write_bytes(MAGIC + FIRST_FRAME), "nothing was recorded yet"),
        (lambda path: path.write_bytes(MAGIC), "nothing was recorded yet"),
    ],
)
def test_no_recording_is_a_line(tmp_path: Path, make, why: str) -> None:
    path = tmp_path / "rec"
    make(path)
    with pytest.raises(InputError, match=f"rec: .*{why}"):
        recordings.read(path)


# The format


@given(
    st.lists(
        st.tuples(
            st.floats(0, 1e10), st.floats(0, 1e10), *[st.integers(0, 2**31 - 1)] * 3, st.integers(-1, 4), st.just(0.5)
        ),
        max_size=50,
    )
)
def test_rows_come_back(rows: list[tuple[float, ...]]) -> None:
    frame = pack_rows(DONE, [value for row in rows for value in row])
    ((kind, body),), after = frames(MAGIC + frame)
    assert (kind, after) == (DONE, 0)
    assert list(zip(*columns_of(DONE, body).values(), strict=True)) == rows


def test_unfinished_requests_are_those_without_an_end(tmp_path: Path) -> None:
    arrivals = [0.1, 0.1, 0.25, 0.7, 0.7000011]
    calls = [(Scheduler(1), Iteration(BASE_S + 1 + at, 1, [1 + at - arrival])) for at, arrival in enumerate(arrivals)]
    ends = [0.1, 0.7, 0.05]  # the last began before the recording did
    calls += [(Scheduler(1, 2, 1), Iteration(BASE_S + 9, 0, [], [Finished(9 - arrival, 5, 6)])) for arrival in ends]
    found = recordings.read(record(tmp_path, calls))
    left = recordings.unfinished_arrivals(found) - BASE_S
    assert left.tolist() == pytest.approx([0.1, 0.25, 0.7], abs=5e-6)
    assert all(one <= other for one, other in pairwise(left))
    assert recordings.waiting_at_end(found) == 3
