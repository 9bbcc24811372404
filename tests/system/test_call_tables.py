"""call_tables.cpp, compiled and run: it says what is wrong, with the line."""

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("call_tables.cpp")


@pytest.mark.compiler
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is missing")
def test_stacks_and_arguments_of_calls(tmp_path):
    program = tmp_path / "call_tables"
    compiled = ["g++", "-std=c++20", "-O1", "-Wall", "-o", str(program), str(SOURCE), "-lpthread"]
    subprocess.run(compiled, check=True)
    assert subprocess.run([program], capture_output=True, text=True).stdout == "right\n"
