"""Fetching a trace gives the published file or nothing; the network is a server on the loopback."""

import functools
import hashlib
import socket
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from artifact.errors import EnvironmentLacks, InputError
from artifact.workloads.fetch import SOURCES, Source, fetch, main

SHARED = Path(__file__).parents[1].parent / "shared" / "traces"
BODY = b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n" * 1000


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        return


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Source]:
    served = tmp_path / "served"
    served.mkdir()
    (served / "trace.csv").write_bytes(BODY)
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(served)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/trace.csv"
    yield Source("trace.csv", url, hashlib.sha256(BODY).hexdigest(), "public domain")
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_trace_is_fetched_once(source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "traces"
    assert main([str(folder)], [source]) == 0
    assert (folder / "trace.csv").read_bytes() == BODY
    assert main([str(folder)], [source]) == 0
    out = capsys.readouterr().out
    assert out.count("fetched (public domain)") == 1
    assert out.count("already there") == 1
    assert [file.name for file in folder.iterdir()] == ["trace.csv"]


def test_another_file_than_published_is_not_kept(source: Source, tmp_path: Path) -> None:
    wrong = Source(source.name, source.url, "0" * 64, source.licence)
    with pytest.raises(EnvironmentLacks, match="SHA-256"):
        fetch(wrong, tmp_path / "traces")
    assert list((tmp_path / "traces").iterdir()) == []


def test_a_users_own_file_is_left_alone(source: Source, tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("mine")
    with pytest.raises(InputError, match="move it away"):
        fetch(source, tmp_path)
    assert (tmp_path / "trace.csv").read_text() == "mine"


def test_no_network_and_no_such_file_are_one_line(
    source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        dead = Source("a.csv", f"http://127.0.0.1:{unused.getsockname()[1]}/a.csv", "0" * 64, "none")
        assert main([str(tmp_path)], [dead]) == 3
    missing = Source("b.csv", source.url + ".gone", "0" * 64, "none")
    assert main([str(tmp_path)], [missing]) == 3
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all("cannot be downloaded" in line for line in lines)


def test_a_folder_that_is_a_file_and_bad_arguments_are_bad_input(source: Source, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        fetch(source, tmp_path / "file")
    assert main(["a", "b"], [source]) == 2
    assert main(["--help"], [source]) == 2


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_hashes_are_those_of_the_public_files(source: Source) -> None:
    copies = list(SHARED.glob(f"*/{source.name}"))
    if not copies:
        pytest.skip("the public traces are not beside the checkout")
    assert hashlib.sha256(copies[0].read_bytes()).hexdigest() == source.sha256
