"""What depends on the processor: cmake/checks/processor.cpp on this one and, where qemu is, on aarch64."""

import json
import platform
import shutil
import sys
import sysconfig
from pathlib import Path

import pytest

from tracer.debugger.errors import DebuggerError
from tracer.debugger.target import look

CHECKS = Path(__file__).resolve().parents[2] / "cmake" / "checks"
sys.path.insert(0, str(CHECKS))
import aarch64  # noqa: E402
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
    compiler = Compiler([aarch64.CROSS], [PYTHON_HEADERS])
    assert aarch64.check_program("aarch64", compiler, runner, tmp_path) == f"aarch64 (qemu): {RIGHT}"
    assert compiler.problem_of(CHECKS / "python_sizes.cpp") is None


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
