"""What depends on the processor: cmake/checks/processor.cpp on this one and, where qemu is, on aarch64."""

import json
import platform
import shutil
import sys
import sysconfig
from pathlib import Path

import pytest

from tracer.debugger.debugger_errors import DebuggerError
from tracer.debugger.target import look

CHECKS = Path(__file__).resolve().parents[2] / "cmake" / "checks"
sys.path.insert(0, str(CHECKS))
import aarch64  # noqa: E402
import test_aarch64 as emulated  # noqa: E402
from compiling import Compiler  # noqa: E402

RIGHT = "return addresses, call sites, stacks, PLT slots, clock: right"
PYTHON_HEADERS = Path(sysconfig.get_path("include"))


def needs(*programs):
    missing = [program for program in programs if shutil.which(program) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} is missing")


@needs("g++")
def test_this_processor(tmp_path):
    said = aarch64.check_program(platform.machine(), Compiler(["g++"], [PYTHON_HEADERS]), [], tmp_path)
    assert said == f"{platform.machine()}: {RIGHT}"


@needs(aarch64.CROSS, "qemu-aarch64")
def test_aarch64(tmp_path):
    runner = ["qemu-aarch64", "-L", str(aarch64.LIBRARIES)]
    compiler = Compiler([aarch64.CROSS], aarch64.python_headers(tmp_path / "python"))
    assert aarch64.check_program("aarch64", compiler, runner, tmp_path) == f"aarch64 (qemu): {RIGHT}"
    assert compiler.problem_of(CHECKS / "python_sizes.cpp") is None


@needs(aarch64.CROSS, "qemu-aarch64")
def test_return_addresses_that_are_signed(tmp_path):
    runner = ["qemu-aarch64", "-L", str(aarch64.LIBRARIES), "-cpu", "max"]
    compiler = Compiler([aarch64.CROSS, aarch64.SIGNED], aarch64.python_headers(tmp_path / "python"))
    assert aarch64.check_program("signed", compiler, runner, tmp_path) == f"signed (qemu): {RIGHT}"


@needs(aarch64.CROSS)
def test_headers_of_debians_python_are_found(tmp_path):
    include = tmp_path / "include/python3.11"
    own = tmp_path / "include/x86_64-linux-gnu/python3.11"
    for folder in include, own:
        folder.mkdir(parents=True)
    (include / "pyconfig.h").write_text("#include <aarch64-linux-gnu/python3.11/pyconfig.h>\n")
    (own / "pyconfig.h").write_text("#define SIZEOF_LONG 8\n")
    source = tmp_path / "size.cpp"
    source.write_text("#include <pyconfig.h>\nstatic_assert(SIZEOF_LONG == sizeof(long));\n")
    for _ in range(2):
        headers = aarch64.python_headers(tmp_path / "build", include, "x86_64-linux-gnu")
        assert Compiler([aarch64.CROSS], headers).problem_of(source) is None


def test_other_pythons_have_one_folder_of_headers(tmp_path):
    (tmp_path / "pyconfig.h").touch()
    assert aarch64.python_headers(tmp_path / "build", tmp_path, "x86_64-linux-gnu") == [tmp_path]
    assert aarch64.python_headers(tmp_path / "build", tmp_path, None) == [tmp_path]
    assert not (tmp_path / "build").exists()


@needs("g++")
def test_what_does_not_compile_is_named(tmp_path):
    source = tmp_path / "layout.cpp"
    source.write_text(
        "template <class T> struct Word { static int size() { static_assert(sizeof(T) == 8); return 8; } };\n"
        "int (*use)() = &Word<int>::size;\n"
    )
    assert "layout.cpp:1" in Compiler(["g++"], []).problem_of(source)
    source.write_text("int f() { return 1; }\n")
    assert Compiler(["g++"], []).problem_of(source) is None


def test_gdb_says_where_it_does_not_work(tmp_path):
    facts = {"executable": "python", "python": "3.11.2", "torch": "/torch", "torchgen": None}
    facts |= {"torch_version": "2.13.0", "machine": "aarch64"}
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho '{json.dumps(facts)}'\n")
    python.chmod(0o755)
    with pytest.raises(DebuggerError, match=r"knows the registers of x86-64 only, and .* runs on aarch64"):
        look(str(python))


def test_the_emulated_rooms_name_tests_that_there_are():
    for room in emulated.ROOMS.values():
        assert all((CHECKS.parents[1] / file).exists() for file in room.files)
        for test in room.left_out:
            file, _, name = test.partition("::")
            assert file in room.files
            assert f"def {name.partition('[')[0]}(" in (CHECKS.parents[1] / file).read_text()


def test_the_table_of_what_ran_emulated():
    counts = emulated.Counts()
    for results in (set(), {"system-out"}, {"failure"}, {"error"}, {"skipped"}):
        counts.add(results)
    assert list(emulated.table({"values": counts}))[2:] == ["| values | 2 | 2 | 1 |  |"]
