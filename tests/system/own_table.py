"""Checks of the dispatcher's table, read from memory as gdb reads it: here a process reads its own.

In a process of its own: after a recording, rows of the table that were alike keep functors that are not.

python tests/system/own_table.py      what each check raised, as JSON
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

_GDB = Path(__file__).parents[2] / "gdb"


def read_table() -> Any:
    sys.path[:0] = [str(_GDB / "inside"), str(_GDB / "inferior"), str(Path(__file__).parents[1])]
    sys.modules["gdb"] = SimpleNamespace(GdbError=ValueError)  # type: ignore[assignment]
    import dispatch_table
    import kernels
    import schemas
    import tensor_layout
    import tensors
    from test_gdb_inside import OwnMemory

    from tracer.trace.names import kernels as naming

    kernels.symbol_at = lambda address: (f"function_{address:x}", 0)
    key_sets = tensors.KeySets(tensor_layout.measure()["keys"])
    return kernels.Table(dispatch_table.measure(), OwnMemory(), schemas.measure(), key_sets, naming)


@contextmanager
def raises(beginning: str) -> Iterator[None]:
    said = ""
    try:
        yield
    except ValueError as error:
        said = str(error)
    assert said.startswith(beginning), said


def rows_are_what_torch_tells(table: Any) -> None:
    """Of an operator that is none of the samples by which the layout was found."""
    import torch

    assert table.readable
    told: dict[str, set[str]] = {}
    for line in torch._C._dispatch_dump_table("aten::bmm").splitlines():
        key, _, text = line.partition(": ")
        told.setdefault(text, set()).add(key)
    fallthrough = {key for text, keys in told.items() if text.startswith("fallthrough") for key in keys}
    alike = {frozenset(kernel["keys"]) - fallthrough for kernel in table.kernels("aten::bmm")}
    assert {frozenset(keys) for keys in told.values()} - {frozenset(fallthrough)} >= {
        keys for keys in alike if "AutogradCPU" in keys or "CPU" in keys or "AutocastCPU" in keys
    }
    (cpu,) = [
        kernel
        for kernel in table.kernels("aten::bmm")
        if "CPU" in kernel["keys"] and kernel["kind"] == "kernel"
    ]
    assert cpu["keys"] == ["CPU"]
    assert cpu["functor"]


def what_is_registered_later_is_found(table: Any) -> None:
    import torch

    assert table.state("own_table::later") is None
    library = torch.library.Library("own_table", "DEF")
    library.define("later.out(Tensor x) -> Tensor")
    before = table.state("own_table::later.out")
    assert before is not None
    library.impl("later.out", lambda x: x, "CPU")
    assert table.state("own_table::later.out") != before
    (kernel,) = [each for each in table.kernels("own_table::later.out") if "CPU" in each["keys"]]
    assert (kernel["kind"], kernel["op"]) == ("boxed kernel", "own_table::later.out")
    assert table.matching(kernel["operator_at"], "own_table::later") == "own_table::later.out"
    assert table.matching(kernel["operator_at"], "own_table::*") == "own_table::later.out"
    assert table.matching(kernel["operator_at"], "own_table::lat") is None


def a_key_without_a_kernel_function_is_said(table: Any) -> None:
    with raises("this torch has no dispatch key NoKey"):
        table.at_key("aten::bmm", "NoKey")
    with raises("aten::bmm has no kernel function at SparseHPU; there are: "):
        table.at_key("aten::bmm", "SparseHPU")
    kernels, key = table.at_key("aten::bmm", "AutocastCPU")
    assert key == "AutocastCPU"
    assert all("AutocastCPU" in kernel["keys"] for kernel in kernels)


def arguments_are_named_as_the_schema_names_them(table: Any) -> None:
    """Those of an operator that the script brings too, where the memory was another one's before."""
    import torch

    library = torch.library.Library("own_table", "FRAGMENT")
    library.define("named(Tensor first, int second=2, *, str[] third_of_a_long_name) -> (Tensor, Tensor)")
    assert table.state("own_table::named") is not None
    assert table.arguments("own_table::named") == ["first", "second", "third_of_a_long_name"]
    for schema in torch._C._jit_get_all_schemas():
        name = schema.name + ("." + schema.overload_name if schema.overload_name else "")
        if name in table.operators:
            assert table.arguments(name) == [argument.name for argument in schema.arguments], name
    assert table.arguments("own_table::no_such") == []


CHECKS: dict[str, Callable[[Any], None]] = {
    check.__name__: check
    for check in (
        rows_are_what_torch_tells,
        what_is_registered_later_is_found,
        a_key_without_a_kernel_function_is_said,
        arguments_are_named_as_the_schema_names_them,
    )
}


def main() -> None:
    table, found = read_table(), {}
    for name, check in CHECKS.items():
        try:
            check(table)
            found[name] = ""
        except Exception:
            found[name] = traceback.format_exc()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
