"""Names of kernel functions by address, also after a kill."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from elf import FUNCTION, OBJECT, write_library
from synthetic import TraceWriter

from tracer.base.elf import Elf
from tracer.trace import load
from tracer.trace.names.symbols import Symbols

SYMBOLS = [
    ("_ZN2at6mm_cpuEv", 0x2000, 0x100, FUNCTION),
    ("_ZN2at12mm_cpu_aliasEv", 0x2000, 0x100, FUNCTION),
    ("_ZN2at7add_cpuEv", 0x1000, 0x80, FUNCTION),
    ("data", 0x2800, 8, OBJECT),
    ("imported", 0, 0, FUNCTION),
    ("no_size", 0x3000, 0, FUNCTION),
]
BUILD_ID = "00112233445566778899aabbccddeeff00112233"
BASE = 0x7F0000000000


@pytest.mark.parametrize("table", [".symtab", ".dynsym"])
def test_lookup(tmp_path: Path, table: str) -> None:
    symbols = Symbols(write_library(tmp_path / "lib.so", SYMBOLS, BUILD_ID, table))
    assert list(symbols.lookup([0x1000, 0x107F, 0x1080, 0x2001, 0x2800, 0x3000, 0x3001, 0, 1 << 63])) == [
        ("_ZN2at7add_cpuEv", 0),
        ("_ZN2at7add_cpuEv", 0x7F),
        ("", 0x1080),
        ("_ZN2at6mm_cpuEv", 1),
        ("", 0x2800),
        ("no_size", 0),
        ("", 0x3001),
        ("", 0),
        ("", 1 << 63),
    ]
    assert list(symbols.lookup([])) == []


def test_a_library_without_functions(tmp_path: Path) -> None:
    path = write_library(tmp_path / "lib.so", [])
    assert list(Symbols(path).lookup([5])) == [("", 5)]
    assert Elf(path).build_id == ""


def test_what_is_no_library(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ValueError, match="not an ELF library"):
        Symbols(tmp_path / "text")
    write_library(tmp_path / "cut", SYMBOLS)
    os.truncate(tmp_path / "cut", 500)
    with pytest.raises(ValueError, match="it is cut"):
        Symbols(tmp_path / "cut")
    with pytest.raises(FileNotFoundError):
        Symbols(tmp_path / "absent")


# ---- completion ----------------------------------------------------------------------------------


def killed(library: Path, recorded_build_id: str = BUILD_ID) -> TraceWriter:
    """A root process and one forked from it, neither of which came to write its symbols."""
    writer = TraceWriter(header={"state": 0, "attached": 2}, trailing_zeros=1 << 14)
    writer.process(0, certificate=None)
    loaded = {"path": str(library), "base": BASE, "end": BASE + 0x10000, "build_id": recorded_build_id}
    writer.json(0, "libraries", [loaded, "damaged", {"path": 3}])
    writer.process(1, how=1, parent_pid=100, certificate=None)
    for process in (0, 1):
        writer.hop(0, "aten::mm", address=BASE + 0x2000, process=process)
        writer.hop(1, "aten::add", address=BASE + 0x1000, process=process)
        writer.hop(2, "aten::mul", address=BASE + 0x1080, process=process)
        writer.hop(3, "aten::sub", address=0x10, process=process)
        lane = writer.lane(process)
        for hop in range(4):
            lane.enter(hop)
            lane.exit()
    return writer


NAMED = ["at::mm_cpu", "at::add_cpu", "lib.so+0x1080", "0x10"]


def test_names_are_completed_once_and_in_the_file(tmp_path: Path) -> None:
    library = write_library(tmp_path / "lib.so", SYMBOLS, BUILD_ID)
    path = killed(library).write(tmp_path / "killed.trace")
    first = load(path)
    assert first.hops["kernel"].to_list() == NAMED * 2
    assert first.certificate["unresolved_kernels"] == 4
    library.unlink()
    content = path.read_bytes()
    second = load(path)
    assert second.hops["kernel"].to_list() == NAMED * 2
    assert second.certificate["damaged_chunks"] == 0
    assert path.read_bytes() == content


def test_a_file_that_somebody_writes_is_left_alone(tmp_path: Path) -> None:
    library = write_library(tmp_path / "lib.so", SYMBOLS, BUILD_ID)
    path = killed(library).write(tmp_path / "live.trace")
    content = path.read_bytes()
    with path.open("r+b"):
        assert load(path).hops["kernel"].to_list() == NAMED * 2
    assert path.read_bytes() == content


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_file_that_may_not_be_written_is_read(tmp_path: Path) -> None:
    library = write_library(tmp_path / "lib.so", SYMBOLS, BUILD_ID)
    path = killed(library).write(tmp_path / "killed.trace")
    path.chmod(0o400)
    assert load(path).hops["kernel"].to_list() == NAMED * 2


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("another build", "lib.so on this machine is a different build than the recorded one"),
        ("absent", "cannot read lib.so on this machine"),
    ],
)
def test_elsewhere_kernels_read_library_and_offset(tmp_path: Path, change: str, why: str) -> None:
    library = tmp_path / "lib.so"
    if change != "absent":
        write_library(library, SYMBOLS, "ff" * 20)
    path = killed(library).write(tmp_path / "killed.trace")
    content = path.read_bytes()
    trace = load(path)
    assert trace.hops["kernel"].to_list()[:4] == ["lib.so+0x2000", "lib.so+0x1000", "lib.so+0x1080", "0x10"]
    assert any(why in line for line in trace.certificate["why"])
    assert path.read_bytes() == content
