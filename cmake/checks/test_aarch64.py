"""Runs tests of tracer on aarch64, which qemu-aarch64 emulates.

    python cmake/checks/test_aarch64.py [--room NAME...]

Debian's Python 3.11 for arm64 and PyPI's wheels for aarch64 are unpacked into build/aarch64 (300 MB to
download), where the extension is compiled (6 CPU minutes). Both are kept. Prints a row for each room of
tests, and exits with 1 if a test failed. No root, container or binfmt: `python` there is a shell script that
starts the emulator.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from aarch64 import CROSS
from compiling import ROOT

sys.path.insert(0, str(ROOT))
from tracer.base.torch_build import build_of, facts_in

TORCH = "2.10.0"  # the last one whose wheel for aarch64 on PyPI has no CUDA
SUITE, PYTHON = "bookworm", "3.11"
SOABI = "cpython-311-aarch64-linux-gnu"
DEBIAN = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian"
SYSTEM = (f"python{PYTHON}", f"libpython{PYTHON}-dev", "libstdc++6", "libgomp1")
# What torch, tracer and the tests need, without what they need themselves.
PACKAGES = (
    *("filelock", "typing-extensions", "sympy", "networkx", "jinja2", "fsspec"),
    *("numpy", "polars>=1.0", "typer>=0.20", "rich", "pyelftools", "pygdbmi", "pyyaml", "markdown-it-py"),
    *("pytest>=8", "greenlet", "hypothesis", "expecttest"),
)
PLATFORMS = (
    "manylinux_2_28_aarch64",
    "manylinux_2_27_aarch64",
    "manylinux_2_17_aarch64",
    "manylinux2014_aarch64",
)
NEEDED = {
    "qemu-aarch64": "qemu-user",
    CROSS: "g++-aarch64-linux-gnu",
    "apt-get": "apt",
    "dpkg-deb": "dpkg",
}
APT = """\
APT::Architecture "arm64";
APT::Architectures {{ "arm64"; }};
Dir::State "{0}";
Dir::State::status "{0}/status";
Dir::State::lists "{0}/lists";
Dir::Cache "{0}/cache";
Dir::Etc::sourcelist "{0}/sources.list";
Dir::Etc::sourceparts "-";
"""
# Without pointer authentication, as most servers with aarch64: its calls are slow to emulate.
PROCESSOR = "neoverse-n1"

NO_SUBREAPER = "QEMU 7.2 lacks a call of the tests' own: prctl(PR_SET_CHILD_SUBREAPER)"


@dataclass(frozen=True)
class Room:
    files: Sequence[str]
    left_out: dict[str, str]
    """What the name of a test begins with, and why it is not run"""


ROOMS = {
    "readers": Room(
        [
            f"tests/unit/test_{name}.py"
            for name in (
                *("reader", "reader_damage", "names", "invitation", "trees", "flat", "links", "tables"),
                *("certificate", "activities", "gpu_trace", "steps"),
            )
        ],
        {},
    ),
    "rings": Room(
        ["tests/cpu/test_ring.py"],
        {
            "tests/cpu/test_ring.py::test_a_killed_ring_is_read": NO_SUBREAPER,
            "tests/cpu/test_ring.py::test_a_ring_is_followed": NO_SUBREAPER,
            "tests/cpu/test_ring.py::test_new_shapes_without_end_take_no_memory": "counts QEMU's memory",
        },
    ),
    "capture, threads": Room(["tests/cpu/test_capture.py"], {}),
    "ops": Room(["tests/cpu/test_ops.py"], {}),
    "autograd, ranges": Room(
        ["tests/cpu/test_ranges.py", "tests/cpu/test_range_identity.py"],
        {
            "tests/cpu/test_ranges.py::test_of_too_many_ranges_the_longest_are_drawn": "compares short times",
        },
    ),
    "programs": Room(
        [
            f"tests/cpu/test_{name}.py"
            for name in ("programs_autograd", "programs_tensors", "unusual_tensors")
        ],
        {"tests/cpu/test_programs_tensors.py::test_quantised": "another engine quantises there"},
    ),
    "storages": Room(["tests/cpu/test_storages.py"], {}),
    "steps": Room(["tests/cpu/test_steps_option.py"], {}),
    "source lines": Room(["tests/cpu/test_source_lines.py"], {}),
    "values": Room(["tests/cpu/test_values.py"], {}),
    "forks": Room(["tests/cpu/test_forks.py"], {}),
    "greenlets": Room(["tests/cpu/test_greenlets.py"], {}),
    "modules": Room(["tests/cpu/test_modules.py"], {}),
    "kill -9": Room(["tests/cpu/test_crash.py"], {}),
}


@dataclass
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, results: set[str]) -> None:
        if results & {"failure", "error"}:
            self.failed += 1
        elif "skipped" in results:
            self.skipped += 1
        else:
            self.passed += 1


class Machine:
    """A folder with an emulated Python, and what is installed for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.root = self.folder / "root"
        self.headers = self.folder / "headers"
        self.python = self.folder / "venv/bin/python"
        self.packages = self.folder / f"venv/lib/python{PYTHON}/site-packages"

    def once(self, name: str, make: Callable[[], None]) -> None:
        """Does what was not done to the end before."""
        done = self.folder / f".{name}"
        if done.exists():
            return
        print(f"aarch64: {name} ...", file=sys.stderr, flush=True)
        make()
        done.touch()

    def unpack_system(self) -> None:
        apt = self.folder / "apt"
        for folder in (self.root, apt / "lists/partial", apt / "cache/archives/partial"):
            folder.mkdir(parents=True, exist_ok=True)
        (apt / "status").touch()
        (apt / "sources.list").write_text(f"deb {DEBIAN} {SUITE} main\n")
        (apt / "apt.conf").write_text(APT.format(apt))
        environment = {**os.environ, "APT_CONFIG": str(apt / "apt.conf")}
        run(["apt-get", "-qq", "update"], env=environment)
        run(["apt-get", "-qq", "-y", "-d", "--no-install-recommends", "install", *SYSTEM], env=environment)
        for package in sorted(apt.glob("cache/archives/*.deb")):
            run(["dpkg-deb", "-x", package, self.root])
        # Debian's pyconfig.h includes <aarch64-linux-gnu/python3.11/pyconfig.h>.
        include, name = self.root / "usr/include", f"python{PYTHON}"
        shutil.copytree(include / name, self.headers, dirs_exist_ok=True)
        own = Path("aarch64-linux-gnu", name)
        shutil.copytree(include / own, self.headers / own, dirs_exist_ok=True)

    def make_python(self) -> None:
        """A virtual environment whose `python` is emulated, whatever variables a test gives it."""
        self.python.parent.mkdir(parents=True, exist_ok=True)
        self.packages.mkdir(parents=True, exist_ok=True)
        home = self.root / "usr/bin"
        words = [shutil.which("qemu-aarch64"), "-U", "G_SLICE", "-cpu", PROCESSOR, "-L", self.root]
        line = " ".join(f"'{word}'" for word in [*words, "-0", self.python, home / f"python{PYTHON}"])
        # QEMU 7.2 is left with a lock of GLib's own allocator where a process forks that has threads.
        self.python.write_text(f'#!/bin/sh\nG_SLICE=always-malloc exec {line} "$@"\n')
        self.python.chmod(0o755)
        (self.folder / "venv/pyvenv.cfg").write_text(
            f"home = {home}\ninclude-system-site-packages = false\nversion = {PYTHON}\n"
        )

    def install(self, *options: str) -> None:
        tags = [word for tag in PLATFORMS for word in ("--platform", tag)]
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-compile",
        ]
        wanted = [
            "--upgrade",
            "--python-version",
            PYTHON,
            "--only-binary",
            ":all:",
            "--target",
            self.packages,
        ]
        run([*pip, *wanted, *tags, *options])

    def install_packages(self) -> None:
        # Of torch alone: pip would ask which of its packages with CUDA this machine's processor needs.
        self.install("--no-deps", f"torch=={TORCH}")
        self.install(*PACKAGES)
        # Bytecode is the same on any processor; to make it in the emulator takes ten times as long.
        same = sys.version_info[:2] == tuple(map(int, PYTHON.split(".")))
        python = sys.executable if same else shutil.which(f"python{PYTHON}") or self.python
        compiled = [self.packages, self.root / f"usr/lib/python{PYTHON}"]
        # Of tests in there some are no Python: what fails is left out.
        subprocess.run([*map(str, (python, "-m", "compileall", "-q", *compiled))], stdout=subprocess.DEVNULL)

    def build(self) -> None:
        """tracer, as `pip install .` builds it; only what has changed is compiled."""
        torch = build_of(facts_in(self.packages / "torch"))
        tools, output = Path(sys.executable).parent, self.folder / "extension"
        facts = {
            "CMAKE_BUILD_TYPE": "Release",
            "CMAKE_MAKE_PROGRAM": tools / "ninja",
            "CMAKE_SYSTEM_NAME": "Linux",
            "CMAKE_SYSTEM_PROCESSOR": "aarch64",
            "CMAKE_CXX_COMPILER": CROSS,
            "Python_EXECUTABLE": sys.executable,
            "TRACER_TORCH_INCLUDE": self.packages / "torch/include",
            "TRACER_TORCH_VERSION": torch.version,
            "TRACER_TORCH_GIT": torch.git,
            "TRACER_CUDA_VERSION": "None",
            "TRACER_PYTHONS": f"{SOABI}={self.headers}",
        }
        given = [f"-D{name}={value}" for name, value in facts.items()]
        cmake = [tools / "cmake", "--log-level=WARNING"]
        run([*cmake, "-S", ROOT, "-B", output, "-G", "Ninja", *given], quiet=True)
        run([tools / "cmake", "--build", output])
        run([tools / "cmake", "--install", output, "--prefix", self.packages], quiet=True)
        for source, target in (("tracer", "tracer"), ("gdb", "tracer/gdb")):
            shutil.copytree(ROOT / source, self.packages / target, dirs_exist_ok=True)
        command = self.python.with_name("tracer")
        command.write_text(f"#!{self.python}\nimport tracer_startup\ntracer_startup.main()\n")
        command.chmod(0o755)


def run(command: Sequence[object], env: dict[str, str] | None = None, quiet: bool = False) -> None:
    """Ends this script if the command fails."""
    words = [*map(str, command)]
    if subprocess.run(words, env=env, stdout=subprocess.DEVNULL if quiet else None).returncode:
        sys.exit(f"aarch64: this failed: {shlex.join(words)}")


def tried(machine: Machine, rooms: Sequence[str]) -> dict[str, Counts]:
    """The tests of these rooms, in one process: to import torch and polars takes it half a minute."""
    report = machine.folder / "report.xml"
    report.unlink(missing_ok=True)
    files = [file for name in rooms for file in ROOMS[name].files]
    left_out = [f"--deselect={test}" for name in rooms for test in ROOMS[name].left_out]
    options = ["-q", "-p", "no:cacheprovider", "--hypothesis-profile=quick", f"--junit-xml={report}"]
    subprocess.run([str(machine.python), "-P", "-m", "pytest", *options, *left_out, *files], cwd=ROOT)
    found = {name: Counts() for name in rooms}
    room_of = {file: name for name in rooms for file in ROOMS[name].files}
    for test in ElementTree.parse(report).iter("testcase") if report.exists() else ():
        file = f"{test.get('classname', '').replace('.', '/')}.py"
        if file in room_of:
            found[room_of[file]].add({result.tag for result in test})
    return found


def table(found: dict[str, Counts]) -> Iterator[str]:
    yield "| tests | passed | failed | skipped | left out |"
    yield "|---|---:|---:|---:|---|"
    for name, counts in found.items():
        left_out = ROOMS[name].left_out
        reasons = f"{len(left_out)}: {'; '.join(dict.fromkeys(left_out.values()))}" if left_out else ""
        yield f"| {name} | {counts.passed} | {counts.failed} | {counts.skipped} | {reasons} |"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--room", nargs="+", choices=ROOMS, default=[*ROOMS], help="default: all")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/aarch64", help="for what is kept")
    arguments = parser.parse_args()
    for program, package in NEEDED.items():
        if shutil.which(program) is None:
            sys.exit(f"{program} is missing: apt-get install {package}")
    machine = Machine(arguments.folder)
    machine.once("system", machine.unpack_system)
    machine.once("python", machine.make_python)
    machine.once(f"torch-{TORCH}", machine.install_packages)
    machine.build()
    found = tried(machine, arguments.room)
    print(*table(found), sep="\n")
    return int(any(counts.failed or not counts.passed for counts in found.values()))


if __name__ == "__main__":
    sys.exit(main())
