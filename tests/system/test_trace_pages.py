"""Traces of a tracer that was compiled for larger pages: trace_pages.cpp, compiled and run without torch."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tracer.trace.bytes import format as fmt
from tracer.trace.bytes.reader import read_recording

SOURCE = Path(__file__).with_name("trace_pages.cpp")
CSRC = Path(__file__).resolve().parents[2] / "csrc"
PARTS = ("trace_file", "ring", "record_stream", "chunk_reader", "descriptor", "unnamed_file", "bus_error")
STRINGS = 9000  # of each process


@pytest.fixture(scope="module", params=[4096, 1 << 16])
def program(request, tmp_path_factory):
    """The page size, and the program."""
    path = tmp_path_factory.mktemp("pages") / "trace_pages"
    sources = [str(SOURCE), *(str(CSRC / f"trace/{part}.cpp") for part in PARTS)]
    options = ["-std=c++20", "-Wall", f"-I{CSRC}", f"-DTRACER_PAGE={request.param}"]
    subprocess.run(["g++", *options, "-o", str(path), *sources, "-lpthread"], check=True)
    return request.param, path


@pytest.mark.compiler
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is missing")
@pytest.mark.parametrize("ring", [0, 8 << 20])
def test_chunks_begin_where_such_a_kernel_can_map_them(program, ring, tmp_path):
    page, path = program
    killed, closed = tmp_path / "killed.trace", tmp_path / "closed.trace"
    subprocess.run([path, killed, closed, str(ring)], check=True)
    for trace in (killed, closed):
        recording = read_recording(trace)
        strings = recording.definitions.strings
        assert [len(each) for each in strings.values()] == [STRINGS, STRINGS]
    data = killed.read_bytes()
    at = fmt.unpack_file_header(data[: fmt.FILE_HEADER.size]).header_bytes
    begins = []
    while at < len(data):
        begins.append(at)
        at += fmt.ChunkHeader(*fmt.CHUNK_HEADER.unpack_from(data, at)).capacity
    assert len(begins) > 6
    assert [begin for begin in begins if begin % page] == []
    assert closed.stat().st_size < killed.stat().st_size
