"""Libraries are a stranger's: they are read in bounded time and memory, and also while somebody cuts them."""

from __future__ import annotations

import os
import random
import shutil
import struct
import time
import tracemalloc
from pathlib import Path

import pytest
from elf import FUNCTION, write_library
from synthetic import TraceWriter

from tracer.base.elf import Elf, named
from tracer.trace import Trace, load
from tracer.trace.names import completion
from tracer.trace.names.symbols import Symbols

ID = "ab" * 20
BASE = 1 << 32


def everything(path: Path) -> None:
    elf = Elf(path)
    assert elf.build_id is not None
    elf.bytes_at(elf.first_address if len(elf._segments) else 0, 8)
    symbols = Symbols(elf)
    list(symbols.lookup(range(0, 1 << 14, 1 << 8)))
    symbols.search(b"f1")
    for table in map(elf.section, (".symtab", ".dynsym")):
        if table:
            named(elf.names(table), elf.symbols(table)["name"], "f1")


def killed(libraries: list[tuple[str, str]], path: Path) -> Trace:
    """Reads a killed process with these (path, build-id), each with one kernel function, at 0x1000."""
    writer = TraceWriter(header={"state": 0}, hop_chunk_bytes=1 << 17)
    writer.process(0)
    lane = writer.lane()
    for number, _ in enumerate(libraries):
        writer.hop(number, address=BASE * (number + 1) + 0x1000)
        lane.enter(number)
        lane.exit()
    bases = range(BASE, BASE * (len(libraries) + 1), BASE)
    writer.json(
        0,
        "libraries",
        [
            {"path": name, "base": base, "end": base + BASE, "build_id": build}
            for base, (name, build) in zip(bases, libraries, strict=True)
        ],
    )
    return load(writer.write(path))


def test_a_changed_library_is_read_or_is_one_error(tmp_path: Path) -> None:
    path = write_library(
        tmp_path / "lib.so", [(f"f{n}", 0x1000 + 16 * n, 16, FUNCTION) for n in range(9)], ID
    )
    whole, chance, read = path.read_bytes(), random.Random(43), 0
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            width = chance.choice((1, 2, 4, 8))
            at = chance.choice((chance.randrange(len(data)), chance.randrange(64), len(data) - 384)) // width
            value = chance.choice((0, 1, 3, 0xFF, 0xFFFF, 1 << 31, (1 << 63) - 1, (1 << 64) - 1)) % (
                1 << 8 * width
            )
            data[at * width : (at + 1) * width] = value.to_bytes(width, "little")
        path.write_bytes(data[: chance.choice((len(data), len(data), chance.randrange(len(data))))])
        try:
            everything(path)
            read += 1
        except (OSError, ValueError):
            continue
    assert 300 < read < 2700


@pytest.mark.parametrize("size", [240_000, 60_000])
def test_sections_that_share_their_notes_cost_the_notes_once(tmp_path: Path, size: int) -> None:
    """2,000 sections of 20,000 notes each, in 368 KB"""
    count, head = 2000, struct.Struct("<HHIQQQIHHHHHH").pack(3, 62, 1, 0, 0, 64, 0, 64, 0, 0, 64, 2000, 0)
    end = 64 + 64 * count
    section = struct.Struct("<IIQQQQIIQQ")
    sections = section.pack(0, 3, 0, 0, end, 16, 0, 0, 1, 0)
    sections += section.pack(0, 7, 0, 0, end + 16, size, 0, 0, 4, 0) * (count - 1)
    library = tmp_path / "libx.so"
    library.write_bytes(
        b"\x7fELF\2\1\1" + bytes(9) + head + sections + bytes(16) + struct.pack("<3I", 0, 0, 9) * 20_000
    )
    begun = time.process_time()
    trace = killed([(str(library), ID)], tmp_path / "x.trace")
    assert time.process_time() - begun < 5
    assert any("cannot read libx.so on this machine" in line for line in trace.certificate["why"])


def test_a_library_that_is_cut_while_it_is_read_is_one_error(tmp_path: Path) -> None:
    many = [(f"f{n}", 0x1000 + 16 * n, 16, FUNCTION) for n in range(5000)]
    path = write_library(tmp_path / "lib.so", many, ID)
    elf = Elf(path)
    symbols = Symbols(elf)
    os.truncate(path, 0)
    for read in (
        lambda: list(symbols.lookup([0x1000])),
        lambda: symbols.search(b"f1"),
        lambda: elf.build_id,
        lambda: Symbols(elf),
    ):
        with pytest.raises(ValueError, match="it is cut"):
            read()


def test_a_relative_path_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_library(tmp_path / "lib.so", [("f", 0x1000, 8, FUNCTION)], ID)
    monkeypatch.chdir(tmp_path)
    trace = killed([("lib.so", ID)], tmp_path / "x.trace")
    assert trace.hops["kernel"].to_list() == ["lib.so+0x1000"]
    assert any("cannot read lib.so on this machine" in line for line in trace.certificate["why"])


def test_a_file_of_many_names_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(write_library(tmp_path / "lib.so", [("f", 0x1000, 8, FUNCTION)], ID))
    os.link(path, tmp_path / "link.so")
    spellings = ["/" * (n + 1) + path[1:] for n in range(40)] + [str(tmp_path / "link.so")]
    read: list[Elf] = []

    def noted(elf: Elf, most: int) -> Symbols:
        read.append(elf)
        return Symbols(elf, most)

    monkeypatch.setattr(completion, "Symbols", noted)
    trace = killed([(spelling, ID) for spelling in spellings], tmp_path / "x.trace")
    assert trace.hops["kernel"].to_list() == ["f"] * 41
    assert len(read) == 1


def test_one_library_is_held_at_a_time(tmp_path: Path) -> None:
    path = write_library(
        tmp_path / "0.so", [(f"f{n}", 0x1000 + 16 * n, 16, FUNCTION) for n in range(30_000)], ID
    )
    copies = [str(shutil.copy(path, tmp_path / f"{n}.so")) for n in range(1, 40)]
    killed([(str(path), ID)], tmp_path / "1.trace")  # what is imported and kept
    tracemalloc.start()
    try:
        trace = killed([(copy, ID) for copy in copies], tmp_path / "x.trace")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert trace.hops["kernel"].to_list() == ["f0"] * 39
    assert peak < 10 << 20


def test_bounds_of_all_libraries_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"lib{n}.so" for n in range(3)]
    paths = [(str(write_library(tmp_path / n, [(n, 0x1000, 8, FUNCTION)], ID)), ID) for n in names]
    for bound, most, why in (
        ("_MOST_LIBRARIES", 2, "cannot read lib2.so on this machine"),
        ("_MOST_SYMBOLS", 4, "cannot read lib2.so on this machine"),
        ("_MOST_TEXTS", 2 * len(paths[0][0] + names[0]), "the names of the functions have more than 0 MiB"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(completion, bound, most)
            trace = killed(paths, tmp_path / f"{bound}.trace")
        assert trace.hops["kernel"].to_list() == ["lib0.so", "lib1.so", "lib2.so+0x1000"]
        assert any(why in line for line in trace.certificate["why"])
