"""`tracer/_C.pyi` says what the extension has: the same functions, parameters and results."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import ModuleType

import pytest
from lazily import torch

import tracer

STUB = ast.parse((Path(tracer.__file__).parent / "_C.pyi").read_text())
FUNCTIONS = {node.name: node for node in STUB.body if isinstance(node, ast.FunctionDef)}
DOCUMENTS = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}


@pytest.fixture
def extension() -> ModuleType:
    import torch  # noqa: F401  # before the extension, which needs its libraries

    from tracer import _C

    return _C


def fields(document: str) -> set[str]:
    return {node.target.id for node in DOCUMENTS[document].body if isinstance(node, ast.AnnAssign)}


def test_same_names(extension: ModuleType) -> None:
    assert {name for name in dir(extension) if not name.startswith("_")} == set(FUNCTIONS)
    assert ast.get_docstring(STUB) == extension.__doc__


@pytest.mark.parametrize("name", FUNCTIONS)
def test_same_parameters(extension: ModuleType, name: str) -> None:
    """pybind11 puts the signature first in the documentation: `join(path: str, session: int) -> bool`."""
    signature = getattr(extension, name).__doc__.splitlines()[0]
    given = signature[len(name) + 1 : signature.rindex(") ->")]
    assert [argument.arg for argument in FUNCTIONS[name].args.args] == re.findall(r"(\w+): ", given)
    assert len(FUNCTIONS[name].args.defaults) == given.count(" = ")
    nothing = ast.unparse(FUNCTIONS[name].returns) == "None"
    assert nothing == signature.endswith("-> None"), signature


def test_same_documents(extension: ModuleType, tmp_path: Path) -> None:
    """Each dictionary that comes back has the fields of its class, no more and no fewer."""
    got = {"Enums": extension.enums(), "Library": extension.libraries()[0]}
    extension.create(str(tmp_path / "t.trace"), 1, True, True)
    try:
        got["Arming"] = extension.arm()
        extension.start()
        torch.ones(1)
        extension.stop()
        got["Certificate"] = extension.certificate()
    finally:
        extension.restore()
        got["Closed"] = extension.close()
    assert {name: set(document) for name, document in got.items()} == {name: fields(name) for name in got}
    assert set(got) | {"Entry"} == set(DOCUMENTS)
