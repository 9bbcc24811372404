"""`make cuda-check` compiles every source file of csrc/cuda and csrc/overrides."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ABSENT = "csrc/cuda/absent.cpp"  # what is compiled instead of csrc/cuda if torch has no CUDA


def sources(folder: str) -> set[str]:
    paths = [path for path in (ROOT / folder).rglob("*") if path.suffix in (".cpp", ".cu")]
    return {str(path.relative_to(ROOT)) for path in paths}


def test_of_the_cuda_part_all_files_are_listed() -> None:
    text = (ROOT / "CMakeLists.txt").read_text()
    (parts,) = re.findall(r"foreach\(part (api_calls[^)]*)\)", text)
    listed = {f"csrc/cuda/{part}.cpp" for part in parts.split()}
    listed |= set(re.findall(r"csrc/cuda/\w+\.cpp", text))
    assert listed == sources("csrc/cuda")
    assert ABSENT in listed


def test_of_the_overrides_all_folders_are_searched() -> None:
    text = (ROOT / "cmake/override_kernels.cmake").read_text()
    patterns = re.findall(r"\$\{OVERRIDES\}/(\S*\*\.(?:cu|cpp))", text)
    found = {
        str(path.relative_to(ROOT)) for each in patterns for path in (ROOT / "csrc/overrides").glob(each)
    }
    assert found == sources("csrc/overrides")


def test_both_parts_are_built() -> None:
    (recipe,) = re.findall(r"^cuda-check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert "--target cuda_part tracer_injection override_kernels override_glue\n" in recipe
