"""Which headers of CUDA a build takes: cmake/cuda_headers.cmake on made folders."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CMAKE = Path(sys.executable).parent / "cmake"
HEADERS = ("cuda_runtime_api.h", "cupti.h", "generated_cuda_runtime_api_meta.h")
MINE = ROOT / "csrc" / "cuda" / "headers"

pytestmark = pytest.mark.skipif(
    not CMAKE.exists() and shutil.which("cmake") is None, reason="there is no cmake, which the build needs"
)


def headers(folder: Path, version: str, *names: str) -> Path:
    folder.mkdir(parents=True)
    major, minor = map(int, version.split("."))
    (folder / "cuda.h").write_text(f"/* a */\n#define CUDA_VERSION {major * 1000 + minor * 10}\n")
    for name in names or HEADERS:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("")
    return folder


def toolkit(folder: Path, version: str) -> Path:
    headers(folder / "include", version, *HEADERS, "crt/host_defines.h")
    return folder


def found(tmp_path: Path, version: str, *, home: Path | None = None) -> tuple[str, list[str]]:
    """The version and the folders that a build for CUDA `version` takes; else the error and no folder.

    Packages are looked for in tmp_path/site/nvidia.
    """
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')  # its own packages are not looked at
    python.chmod(0o755)
    script = tmp_path / "find.cmake"
    script.write_text(
        f'set(CMAKE_CURRENT_SOURCE_DIR "{ROOT}")\nset(Python_EXECUTABLE "{python}")\n'
        f'include("{ROOT}/cmake/cuda_headers.cmake")\nfind_cuda_headers("{version}")\n'
        'message("FOUND|${CUDA_HEADERS_VERSION}|${CUDA_HEADERS}")\n'
    )
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path / "site")}
    if home:
        environment["CUDA_HOME"] = str(home)
    command = [str(CMAKE) if CMAKE.exists() else "cmake", "-P", str(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    for line in done.stderr.splitlines():
        if line.startswith("FOUND|"):
            _, taken, folders = line.split("|")
            return taken, folders.split(";")
    return " ".join(done.stderr.split()), []


def test_torchs_own_packages_are_enough(tmp_path: Path) -> None:
    package = headers(tmp_path / "site" / "nvidia" / "cu13" / "include", "13.7")
    assert found(tmp_path, "13.7") == ("13.7", [str(package), str(MINE)])


def test_packages_of_cuda_12_have_a_folder_each(tmp_path: Path) -> None:
    nvidia = tmp_path / "site" / "nvidia"
    runtime = headers(nvidia / "cuda_runtime" / "include", "12.7", "cuda_runtime_api.h")
    cupti = nvidia / "cuda_cupti" / "include"
    cupti.mkdir(parents=True)
    for name in HEADERS[1:]:
        (cupti / name).write_text("")
    nvcc = nvidia / "cuda_nvcc" / "include"
    (nvcc / "crt").mkdir(parents=True)
    (nvcc / "crt" / "host_defines.h").write_text("")
    assert found(tmp_path, "12.7") == ("12.7", [str(runtime), str(cupti), str(nvcc)])


def test_torchs_packages_come_before_a_toolkit(tmp_path: Path) -> None:
    package = headers(tmp_path / "site" / "nvidia" / "cu13" / "include", "13.7")
    other = toolkit(tmp_path / "toolkit", "13.8")
    same = toolkit(tmp_path / "same", "13.7")
    assert found(tmp_path, "13.7", home=same) == ("13.7", [str(package), f"{same}/include"])
    assert found(tmp_path, "13.7", home=other)[1][0] == str(package)


def test_a_toolkit_of_another_version_is_named_by_its_version(tmp_path: Path) -> None:
    """Of the same major version it is taken if CUDA_HOME names it, and the version is the toolkit's own."""
    other = toolkit(tmp_path / "toolkit", "13.8")
    assert found(tmp_path, "13.7", home=other) == ("13.8", [f"{other}/include"])
    error, folders = found(tmp_path, "12.7", home=other)
    assert folders == []
    assert f"{tmp_path}/toolkit has CUDA 13.8, so it is not used." in error


@pytest.mark.parametrize(
    ("version", "packages"),
    [
        ("13.7", "'nvidia-cuda-cupti==13.7.*' 'nvidia-cuda-runtime==13.7.*'"),
        ("12.7", "'nvidia-cuda-cupti-cu12==12.7.*' 'nvidia-cuda-runtime-cu12==12.7.*'"),
    ],
)
def test_what_is_missing_is_said_with_packages_of_that_cuda(
    tmp_path: Path, version: str, packages: str
) -> None:
    error, folders = found(tmp_path, version)
    assert folders == []
    assert f"torch has CUDA {version}, but these of its headers are missing: cuda.h, " in error
    assert "crt/host_defines.h" not in error, "the build has one of its own"
    assert f"pip install {packages}, or set CUDA_HOME to a toolkit of CUDA {version}" in error
