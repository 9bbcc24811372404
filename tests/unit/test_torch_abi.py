"""csrc/torch_abi and tracer/base/torch_abi.py hold what tracer knows of torch's insides; the docs list it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tracer.base import torch_abi

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "cmake" / "checks"))
import private_names  # noqa: E402
from compiling import CSRC, extension_sources, torch_abi_headers  # noqa: E402

FOLDER = CSRC / "torch_abi"
FILES = sorted(FOLDER.glob("*"))
OTHER_FILES = [
    file
    for kind in ("*.cpp", "*.h")
    for file in CSRC.rglob(kind)
    if file.parent != FOLDER and "_C" not in file.name
]
# Mangled names, and names of classes that are compared with type names.
TEXTS = re.compile(r'"(_Z\w{4,}|N5torch\w+|21\w+|\w*(?:WrapFunction|KernelHolder|BoxedKernel)\w*)"')
PRIVATE_MEMBER = re.compile(
    r"^\s*(?:TRACER_PRIVATE_MEMBER|template struct Access)[^;]*?(\w+)(?:>|\))?;", re.MULTILINE
)
CONSTANT = re.compile(r"^constexpr .*?\b(k\w+)(?:\[\])? =", re.MULTILINE)
TABLE = (
    (ROOT / "docs/versions.md")
    .read_text()
    .partition("### What tracer knows of torch's insides")[2]
    .partition("\n## ")[0]
)


def test_every_text_of_the_folder_is_looked_for() -> None:
    """The start of a name is enough: `_ZN2at4_ops` stands for all operators."""
    known = {name for names in private_names.LIBRARIES.values() for name in names}
    known |= private_names.NOT_EVERYWHERE
    texts = {text for file in FILES for text in TEXTS.findall(file.read_text())}
    assert len(texts) > 10
    assert {text for text in texts if not any(name.startswith(text) for name in known)} == set()


@pytest.mark.parametrize("pattern", [TEXTS, PRIVATE_MEMBER], ids=["texts", "private members"])
def test_the_rest_of_the_extension_has_none(pattern: re.Pattern[str]) -> None:
    assert len(OTHER_FILES) > 80
    assert {str(file): found for file in OTHER_FILES if (found := pattern.findall(file.read_text()))} == {}


def test_the_layout_check_compiles_the_folder_and_who_uses_it() -> None:
    compiled = {*extension_sources(), *torch_abi_headers()}
    assert set(FILES) <= compiled
    users = {file for file in OTHER_FILES if "torch_abi/" in file.read_text() and file.suffix == ".cpp"}
    assert {"arming.cpp", "registration.cpp"} <= {file.name for file in users}
    assert users <= compiled


def test_the_table_has_every_file_member_and_constant() -> None:
    words = set(re.findall(r"[\w.]+", TABLE))
    for file in FILES:
        assert file.name in words or file.with_suffix(".h").name in words, file
    headers = "".join(file.read_text() for file in torch_abi_headers() if file.name != "private_member.h")
    members = PRIVATE_MEMBER.findall(headers)
    assert {"dispatchTable_", "computeDispatchTableEntry", "autograd_meta_", "guard_"} <= set(members)
    assert [name for name in members if name not in words] == []
    texts = {
        "kTorchCpu",
        "kLibraries",
        "kTableEntries",
        "kModuleCall",
        "kCompiled",
    }  # whose rows have what is in them
    assert {name for name in CONSTANT.findall(headers) if name not in words} <= texts


def test_the_table_has_every_name_of_the_module() -> None:
    names = [name for name in vars(torch_abi) if name.isupper()]
    assert len(names) > 10
    assert [name for name in names if f"`{name}`" not in TABLE] == []


def test_the_module_has_every_private_function_that_is_called() -> None:
    called = {
        name
        for file in (ROOT / "tracer").rglob("*.py")
        for name in re.findall(r"\b(?:torch\._C|native)\.(_[a-z]\w+)", file.read_text())
    }
    assert called == set(torch_abi.PRIVATE_FUNCTIONS["torch/_C/__init__.pyi"])


def test_a_release_without_a_class_or_method_is_named(tmp_path: Path) -> None:
    missing = private_names.missing_in_python_files(tmp_path)
    assert len(missing) == len(private_names.PYTHON)
    (tmp_path / "torch/nn/modules").mkdir(parents=True)
    (tmp_path / "torch/nn/modules/module.py").write_text("    def _call_impl(self): ...\n")
    assert len(private_names.missing_in_python_files(tmp_path)) == len(missing) - 1
