"""Names of torch that csrc uses as text: in the installed torch, and in the list of `make check-layout`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "cmake" / "checks"))
import private_names  # noqa: E402
from compiling import CSRC, extension_sources  # noqa: E402

TORCH = Path(torch.__file__).parent
# Mangled names, and names of classes that are compared with type names.
TEXTS = re.compile(r'"(_Z\w{4,}|N5torch\w+|21\w+|\w*(?:WrapFunction|KernelHolder)\w*)"')


def test_the_installed_torch_has_them() -> None:
    assert private_names.missing_in_headers(TORCH / "include") == []
    assert private_names.missing_in_libraries(TORCH / "lib") == []


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    assert len(private_names.missing_in_headers(tmp_path)) == sum(map(len, private_names.HEADERS.values()))
    for library in private_names.LIBRARIES:
        (tmp_path / library).write_bytes(b"PythonKernelHolder")
    missing = private_names.missing_in_libraries(tmp_path)
    assert "libtorch_python.so has no N5torch8autograd6PyNodeE" in missing
    assert "libtorch_python.so has no PythonKernelHolder" not in missing


def test_every_text_of_csrc_is_in_the_list() -> None:
    """The start of a name is enough: `_ZN2at4_ops` stands for all operators."""
    known = {name for names in private_names.LIBRARIES.values() for name in names}
    known |= private_names.NOT_EVERYWHERE
    files = [*(CSRC / "dispatch").glob("*"), *(CSRC / "python").glob("*"), *(CSRC / "native").glob("*")]
    texts = {text for file in files if file.is_file() for text in TEXTS.findall(file.read_text())}
    assert len(texts) > 10
    assert {text for text in texts if not any(name.startswith(text) for name in known)} == set()


def test_every_file_with_a_private_member_is_compiled() -> None:
    private = re.compile(r"^(TRACER_PRIVATE_MEMBER|template struct Access)", re.MULTILINE)
    files = {
        file for kind in ("*.cpp", "*.h") for file in CSRC.rglob(kind) if private.search(file.read_text())
    }
    assert {file.name for file in files} == {"dispatch_table.h", "arguments.cpp", "registration.cpp"}
    assert {file for file in files if file.suffix == ".cpp"} <= set(extension_sources())
