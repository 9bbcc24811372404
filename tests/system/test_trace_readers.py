"""What counts and trims a trace when its recording ends, on files that another process has changed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tracer
from tracer.trace.bytes import format as fmt

sys.path.insert(0, str(Path(__file__).parents[1] / "fuzz"))

from bases import bases
from mutations import Base, Random, changed_field, chunks_of, mutated
from readers import COMPILER, Readers, ReadersFailedError, build

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no g++")
CASES = 300


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("readers"))


@pytest.fixture
def readers(program: Path) -> Iterator[Readers]:
    with Readers(program) as running:
        yield running


@pytest.fixture(scope="module")
def known() -> dict[str, Base]:
    return {base.name: base for base in bases()}


def test_they_count_what_the_tables_have(tmp_path: Path, readers: Readers, known: dict[str, Base]) -> None:
    for name, base in known.items():
        file = tmp_path / f"{name}.trace"
        file.write_bytes(base.data)
        trace = tracer.load(file)
        before, after = readers.read(file)
        assert before["hops"] == len(trace.hops) > 0
        assert before["op_calls"] == (trace.hops["kind"] == "call").sum()
        assert before["open_hops"] == trace.certificate["open_hops"]
        assert before["damaged_chunks"] == 0
        if name != "slots":  # some of which the program takes again
            assert after == before
            assert len(tracer.load(file).hops) == len(trace.hops)


def test_mutated_files(tmp_path: Path, readers: Readers, known: dict[str, Base]) -> None:
    small = [base for name, base in known.items() if name != "gpu"]
    file = tmp_path / "case.trace"
    for number in range(CASES):
        _, data = mutated(small, 43, number)
        file.write_bytes(data)
        assert not (fault := readers.fault_of(file)), f"case {number}: {fault}"


@pytest.mark.parametrize("name", ["written", "killed", "slots"])
def test_each_field(tmp_path: Path, readers: Readers, known: dict[str, Base], name: str) -> None:
    """Headers with the right check, heads, lengths and events; one or two of them are another."""
    file = tmp_path / "case.trace"
    for number in range(CASES // 2):
        data, rng = bytearray(known[name].data), Random(number)
        for _ in range(rng.choice([1, 2])):
            at, other = changed_field(bytes(data), rng)
            data[at : at + len(other)] = other
        file.write_bytes(data)
        assert not (fault := readers.fault_of(file)), f"field {number}: {fault}"


def _of_stream(data: bytes, stream: int) -> int:
    return next(at for at, header in chunks_of(data) if header.stream == stream)


def _definition(data: bytes, wanted: int) -> int:
    at = _of_stream(data, fmt.DEFINITIONS) + fmt.CHUNK_HEADER.size
    while fmt.DEFINITION_HEAD.unpack_from(data, at)[1] != wanted:
        at += fmt.DEFINITION_HEAD.unpack_from(data, at)[0]
    return at


LENGTHS = {
    "what a chunk has used": (lambda data: _of_stream(data, fmt.HOPS) + 8, 1 << 12),
    "a definition": (lambda data: _definition(data, fmt.JSON), 1 << 20),
    "the name of an op": (lambda data: _definition(data, fmt.HOP) + fmt.DEFINITION_HEAD.size + 28, 1 << 31),
    "the name of a document": (lambda data: _definition(data, fmt.JSON) + fmt.DEFINITION_HEAD.size, 1 << 12),
}


@pytest.mark.parametrize("name", LENGTHS)
def test_a_length_that_leads_out(tmp_path: Path, readers: Readers, known: dict[str, Base], name: str) -> None:
    """The chunk counts as damaged, the hops in it count, and the file is not trimmed."""
    place, length = LENGTHS[name]
    data = bytearray(known["written"].data)
    at = place(bytes(data))
    data[at : at + 4] = length.to_bytes(4, "little")
    file = tmp_path / "case.trace"
    file.write_bytes(known["written"].data)
    whole, _ = readers.read(file)
    file.write_bytes(data)
    before, after = readers.read(file)
    assert before == after
    assert (before["hops"], before["damaged_chunks"]) == (whole["hops"], 1)


@pytest.mark.parametrize("name", ["gpu", "slots"])
def test_a_file_that_is_cut_while_it_is_read(
    tmp_path: Path, readers: Readers, known: dict[str, Base], name: str
) -> None:
    """Before each system call: it says that it was cut, or what it had counted."""
    file, whole = tmp_path / "case.trace", known[name].data
    said = set()
    for size in (0, 5000, len(whole) // 2):
        for call in range(1, 40):
            file.write_bytes(whole)
            said |= {counted["gone"] for counted in readers.read(file, call, size)}
    assert said == {"", "was cut by another process"}


def _chunk(capacity: int, **fields: int) -> bytes:
    header = fmt.ChunkHeader(fmt.CHUNK_MAGIC, capacity, *[0] * 14)._replace(**fields)
    return fmt.CHUNK_HEADER.pack(*header._replace(check=header.computed_check()))


LARGE = 4 << 20
_MAGIC = fmt.CHUNK_MAGIC.to_bytes(4, "little")
_ENTER = (1 << 63 | fmt.ENTER << 59).to_bytes(40, "little")
HOSTILE = {
    "chunks without anything": _chunk(64, stream=fmt.HOPS, used=64) * (LARGE // 64),
    "chunks of no stream": _chunk(64, stream=9) * (LARGE // 64),
    "chunks that are larger than they are": _chunk(LARGE, stream=fmt.HOPS, used=64) * (LARGE // 64),
    "heads with a wrong check": (_MAGIC + bytes(60)) * (LARGE // 64),
    "one chunk of definitions": _chunk(LARGE, stream=fmt.DEFINITIONS)
    + fmt.pack_definition(fmt.HOP, 0, b"") * (LARGE // 16 - 4),
    "hops in hops": (_chunk(1 << 20, stream=fmt.HOPS) + _ENTER * 26_212 + bytes(32)) * (LARGE >> 20),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_time_grows_with_the_size(
    tmp_path: Path, readers: Readers, known: dict[str, Base], name: str
) -> None:
    """The program gets a minute for each."""
    file = tmp_path / "large.trace"
    file.write_bytes(known["written"].data[: fmt.HEADER_BYTES] + HOSTILE[name])
    readers.read(file)


def test_a_file_with_a_hole_of_terabytes(tmp_path: Path, readers: Readers, known: dict[str, Base]) -> None:
    file = tmp_path / "large.trace"
    file.write_bytes(known["written"].data)
    before, _ = readers.read(file)
    file.write_bytes(known["written"].data)
    try:
        os.truncate(file, 1 << 42)
    except OSError:
        pytest.skip("this file system has no files of 4 TiB")
    assert readers.read(file) == [before, before]
    assert file.stat().st_size < 1 << 20


def test_a_failure_is_said(tmp_path: Path) -> None:
    script = tmp_path / "fails"
    script.write_text("#!/bin/sh\nread line\necho 'ERROR: AddressSanitizer: SEGV' >&2\nexit 1\n")
    script.chmod(0o755)
    with Readers(script) as failing, pytest.raises(ReadersFailedError, match=r"status 1 ERROR: Addr.* SEGV"):
        failing.read(tmp_path / "case.trace")
