"""What `make wheels` looks for on this machine."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "cmake" / "wheels"), str(ROOT / "cmake" / "checks")]

pytest.importorskip("unearth", reason="pip install unearth, as make wheels does")

assemble, build, sysroot = map(import_module, ("assemble", "build", "sysroot"))

THIS = f"{sys.version_info[0]}.{sys.version_info[1]}"


def test_a_python_is_found_with_its_headers() -> None:
    found = build.find_python(THIS)
    assert (found.version, found.tag) == (THIS, f"cp{THIS.replace('.', '')}")
    assert found.soabi.startswith("cpython-")
    assert Path(found.include, "Python.h").exists()


def test_a_python_that_is_not_there_is_named() -> None:
    with pytest.raises(SystemExit, match=r"no Python 3\.99 with headers was found"):
        build.find_python("3.99")


def test_the_loader_of_an_older_system_stays_in_its_folder(tmp_path: Path) -> None:
    """libc.so names /lib64/ld-linux-x86-64.so.2; an absolute link leads out of the folder."""
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib/x86_64-linux-gnu").mkdir(parents=True)
    loader = tmp_path / "lib/x86_64-linux-gnu/ld-2.31.so"
    loader.touch()
    link = tmp_path / "lib64/ld-linux-x86-64.so.2"
    link.symlink_to("/lib/x86_64-linux-gnu/ld-2.31.so")
    sysroot._relative_loader(tmp_path)
    assert link.resolve() == loader


def test_tools_beside_the_python_of_make_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    here = str(Path(sys.executable).parent)
    assemble._run("-c", f"import os; assert {here!r} in os.environ['PATH'].split(os.pathsep)")


def test_a_torch_gets_the_cuda_part_of_its_own_major_version(tmp_path: Path) -> None:
    for version, folder in (("13000", "a/nvidia/cu13"), ("12080", "b/nvidia/cuda_runtime")):
        (tmp_path / folder / "include").mkdir(parents=True)
        (tmp_path / folder / "include/cuda.h").write_text(f"#define CUDA_VERSION {version}\n")
    cupti = tmp_path / "b/nvidia/cuda_cupti/include"
    cupti.mkdir(parents=True)
    (cupti / "cupti.h").touch()
    packages = [tmp_path / "a", tmp_path / "b"]
    runtime = tmp_path / "b/nvidia/cuda_runtime/include"
    assert build.cuda_headers(packages, "12.6") == ("12.8", [cupti, runtime])
    for cuda in ("13.2", None):
        assert build.cuda_headers(packages, cuda) == ("13.0", [tmp_path / "a/nvidia/cu13/include"])


PROGRAM = """
#include <exception>
#include <sstream>
#include <utility>

extern "C" int length() {
  std::ostringstream stream;
  stream << 42;
  std::exception_ptr error = std::make_exception_ptr(1), other = error;
  return std::move(stream).str().size() + (other == error);
}
"""


def test_what_a_newer_compiler_takes_from_its_libraries_is_in_the_wheel(tmp_path: Path) -> None:
    """Of what torch's headers use; without portable.cpp auditwheel refuses the wheel.

    Without optimisation the library has copies of inline functions, which portable.cpp must not call.
    """
    (tmp_path / "program.cpp").write_text(PROGRAM)
    options = ["-std=c++20", "-shared", "-fPIC", "-fvisibility-inlines-hidden"]
    files = [str(tmp_path / "program.cpp"), str(ROOT / "cmake/wheels/portable.cpp")]
    library = tmp_path / "library.so"
    subprocess.run(["g++", *options, *files, "-o", str(library)], check=True)
    called = f"import ctypes; print(ctypes.CDLL({str(library)!r}).length())"
    assert subprocess.check_output([sys.executable, "-c", called], text=True) == "3\n"
    names = subprocess.check_output(["nm", "-D", "--undefined-only", library], text=True)
    assert "exception_ptr" in names
    newer = r"GLIBCXX_3\.4\.(2[2-9]|3)|CXXABI_1\.3\.1[2-9]"
    assert [line for line in names.splitlines() if re.search(newer, line)] == []
