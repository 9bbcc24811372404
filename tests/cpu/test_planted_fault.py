"""`make sanitize` reports a fault: that of AddressSanitizer's plant, built alone and run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kept_extensions import STORE, made_with
from kept_once import key_of, made_once
from lazily import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "cmake" / "checks"))

import sanitize
from sanitizers import ADDRESS, SANITIZERS

PROGRAM = """
#include <cstdio>
#include "dispatch/registrations.h"
int main() { std::printf("%s\\n", tracer::dispatch::key_name(0).c_str()); }
"""


def build(kind: str, csrc: Path) -> Path:
    """The program with these sources, kept as long as they, torch and the compiler stay the same."""
    files = sorted(path for path in csrc.rglob("*") if path.is_file())
    texts = [part for path in files for part in (str(path.relative_to(csrc)), path)]
    key = key_of(PROGRAM, Path(__file__), made_with(), *texts)
    return made_once(STORE / f"sanitized-{kind}", key, lambda place: compile_program(place, csrc)) / "program"


def compile_program(folder: Path, csrc: Path) -> None:
    (folder / "program.cpp").write_text(PROGRAM)
    home = Path(torch.__file__).parent
    parts = ("dispatch/registrations.cpp", "fork_locks.cpp")
    sources = [folder / "program.cpp", *(csrc / part for part in parts)]
    headers = [f"-isystem{home / 'include' / part}" for part in ("", "torch/csrc/api/include")]
    libraries = [f"-L{home / 'lib'}", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{home / 'lib'}"]
    flags = ["-std=c++20", "-O1", "-g1", "-w", "-fsanitize=address", "-fsanitize-recover=all"]
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    made_of = [abi, f"-I{csrc}", *headers, *map(str, sources), *libraries]
    subprocess.run(["g++", *flags, *made_of, "-o", str(folder / "program")], check=True)


def run_program(folder: Path, program: Path) -> tuple[str, dict[str, list[sanitize.Report]]]:
    """What the program prints, and the faults that are reported of it."""
    logs = folder / "logs"
    logs.mkdir()
    options = {name: text.format(log=logs / "report") for name, text in ADDRESS.options.items()}
    done = subprocess.run([program], env=os.environ | options, capture_output=True, text=True, check=True)
    return done.stdout, sanitize.faults(sanitize.reports(logs))


@pytest.mark.compiler
def test_the_planted_fault_is_reported(tmp_path: Path) -> None:
    csrc = sanitize.planted_sources(ADDRESS.plant, tmp_path / "csrc")
    _, faults = run_program(tmp_path, build("planted", csrc))
    assert len(faults) == 1
    ((title, same),) = faults.items()
    assert "AddressSanitizer: global-buffer-overflow" in title
    assert "dispatch/registrations.cpp" in title
    assert ADDRESS.plant.function in same[0].text


@pytest.mark.compiler
def test_without_it_nothing_is_reported(tmp_path: Path) -> None:
    out, faults = run_program(tmp_path, build("as-it-is", sanitize.CSRC))
    assert (out, faults) == ("Undefined\n", {})


@pytest.mark.parametrize("name", SANITIZERS)
def test_each_plant_has_its_place(tmp_path: Path, name: str) -> None:
    plant = SANITIZERS[name].plant
    csrc = sanitize.planted_sources(plant, tmp_path / "csrc")
    assert (csrc / plant.file).read_text() != (sanitize.CSRC / plant.file).read_text()
    assert (csrc / plant.source).exists()


def test_a_race_counts_if_our_code_runs_in_it(tmp_path: Path) -> None:
    race = (
        "==================\nWARNING: ThreadSanitizer: data race (pid={pid})\n"
        "  Write of size 8 at 0x7b04 by thread T{thread}:\n    #0 {function} {file}:12 (lib.so+0x12)\n"
        "SUMMARY: ThreadSanitizer: data race\n==================\n"
    )
    ours = {"function": "tracer::trace::finish_lane()", "file": "/x/csrc/trace/lane.cpp"}
    other = {"function": "at::native::add()", "file": "/x/aten/add.cpp"}
    logs = [race.format(pid=1, thread=1, **ours) + race.format(pid=1, thread=2, **other)]
    logs += [race.format(pid=2, thread=7, **ours)]
    for number, text in enumerate(logs):
        (tmp_path / f"report.{number}").write_text(text)
    found = sanitize.reports(tmp_path)
    assert len(found) == 3
    assert [len(same) for same in sanitize.faults(found).values()] == [2]


def test_remarks_of_a_sanitizer_are_no_reports(tmp_path: Path) -> None:
    (tmp_path / "report.1").write_text(
        "==7==WARNING: AddressSanitizer failed to allocate 0x100000000 bytes\n"
    )
    assert sanitize.reports(tmp_path) == []
