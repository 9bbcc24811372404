"""Each kind of argument that gdb reads, boxed and from registers, beside the value that Python gave."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from debugging import debug
from launching import Launcher

pytestmark = pytest.mark.gdb

# torch.ops calls with boxed arguments; the kernel functions get the same in registers and in memory.
SCRIPT = """
import json, torch

torch.set_num_threads(1)
aten = torch.ops.aten
x, y = torch.rand(3, 4), torch.rand(3, 4, requires_grad=True)
image, weight = torch.rand(1, 2, 5, 5), torch.rand(3, 2, 2, 2)
wide, generator = torch.rand(4, 6)[1:, ::2], torch.Generator().manual_seed(3)
storage = torch.rand(8).untyped_storage()
CALLS = [
    (aten.add.Tensor, [x > 0, x > 1], {"alpha": True}),
    (aten.add.Tensor, [wide, wide], {"alpha": -3}),
    (aten.add.Tensor, [x, y], {"alpha": 0.25}),
    (aten.fill_.Scalar, [torch.zeros(2, dtype=torch.complex64), 2 - 3j], {}),
    (aten.fill_.Scalar, [torch.zeros(2, dtype=torch.int64), 2**62 + 1], {}),
    (aten.fill_.Scalar, [torch.zeros((), dtype=torch.bool), True], {}),
    (aten.full.default, [[2, 3], 1.5], {"dtype": torch.float64, "layout": torch.strided,
                                        "device": torch.device("cpu"), "pin_memory": False}),
    (aten.empty.memory_format, [[1, 2, 3, 4]], {"memory_format": torch.channels_last}),
    (aten.empty.memory_format, [[3]], {"dtype": torch.float8_e4m3fn, "device": torch.device("meta")}),
    (aten.div.Tensor_mode, [x, y], {"rounding_mode": "floor"}),
    (aten.div.Tensor_mode, [x, y], {"rounding_mode": None}),
    (aten.gelu.default, [x], {"approximate": "tanh"}),
    (aten.rand.generator, [[2]], {"generator": generator}),
    (aten.bernoulli_.float, [torch.zeros(3), 0.25], {"generator": generator}),
    (aten.normal_.default, [torch.zeros(3), -1.5, 2.0], {}),
    (aten.set_.source_Storage, [torch.zeros(0), storage], {}),
    (aten.set_.source_Storage_storage_offset, [torch.zeros(0), storage, 1, [2, 3], [3, 1]], {}),
    (aten.cat.default, [[x, y, wide.new_zeros(3, 0)], 1], {}),
    (aten.index.Tensor, [x, [None, torch.tensor([1, 3])]], {}),
    (aten.index_put_.default, [torch.zeros(3), [torch.tensor([1])], torch.ones(1), True], {}),
    (aten.sum.dim_IntList, [x, [0, -1], True], {"dtype": torch.float64}),
    (aten.sum.dim_IntList, [x, None], {}),
    (aten.convolution.default, [image, weight, None, [1, 1], [0, 1], [1, 1], False, [0, 0], 1], {}),
    (aten.convolution_backward.default, [torch.rand(1, 3, 4, 4), image, weight, [3], [1, 1], [0, 0], [1, 1],
                                         False, [0, 0], 1, [True, False, True]], {}),
    (aten.upsample_bilinear2d.default, [image, [7, 8], True, 1.4, None], {}),
    (aten.upsample_bilinear2d.vec, [image, None, False, [2.0, 2.5]], {}),
    (aten.std.correction, [x, [0]], {"correction": 0.5, "keepdim": True}),
    (aten.clamp.default, [x, None, 2], {}),
    (aten.clamp.Tensor, [x, None, y], {}),
    (aten.native_layer_norm.default, [x, [4], None, torch.zeros(4), 1e-3], {}),
    (aten._to_copy.default, [x], {"dtype": torch.bfloat16, "non_blocking": True,
                                  "memory_format": torch.preserve_format}),
    (aten.slice.Tensor, [x, 1, None, 3, 2], {}),
    (aten.slice.Tensor, [x, -1, -2, 2**63 - 1], {}),
    (aten.linspace.default, [-1, 2.5, 4], {}),
    (aten.searchsorted.Tensor, [torch.arange(4.0), torch.rand(2)], {"side": "right", "out_int32": True}),
    (aten.einsum.default, ["ij,ik->jk", [x, y]], {}),
    (aten._foreach_add.ScalarList, [[x, wide], [1.5, 2]], {}),
    (aten._fft_c2c.default, [torch.rand(4, dtype=torch.complex64), [0], 1, False], {}),
    (aten.as_strided.default, [x, [2, 2], [1, 4], 3], {}),
]

def plain(value):
    if isinstance(value, torch.Tensor):
        return {"shape": list(value.shape), "stride": list(value.stride()),
                "dtype": str(value.dtype).removeprefix("torch."), "device": str(value.device)}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, (torch.Generator, torch.UntypedStorage)):
        kind = "generator" if isinstance(value, torch.Generator) else "storage"
        return f"a {kind} at {value._cdata:#x}"
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format, torch.device)):
        return str(value).removeprefix("torch.")
    return str(value).strip("()") if isinstance(value, complex) else value

told = []
for op, positional, named in CALLS:
    values = {}
    for place, argument in enumerate(op._schema.arguments):
        given = named.get(argument.name, argument.default_value)
        values[argument.name] = plain(positional[place] if place < len(positional) else given)
    told.append([str(op).removesuffix(".default").replace(".", "::", 1), values])
    op(*positional, **named)
with open("told.json", "w") as file:
    json.dump(told, file)
"""


def test_each_reading_is_the_value_that_python_gave(launcher: Launcher) -> None:
    """`-rP` prints how many stops and readings were compared."""
    launcher.write(SCRIPT)
    operators = dict.fromkeys(re.findall(r"\(aten\.([\w.]+), \[", SCRIPT))
    breaks = [word for op in operators for word in ("--break", f"aten::{op.removesuffix('.default')}")]
    found = debug(launcher, "script.py", *breaks, "--limit", "0")
    assert found.run.status == 0, found.run.err
    told = json.loads((launcher.folder / "told.json").read_text())
    compared, kinds, differences = 0, Counter[str](), []
    for op, values, stops in zip(*zip(*told, strict=True), _calls(found.stops, told), strict=True):
        kinds.update(stop["kind"] for stop in stops)
        for stop in stops:
            read = {argument["name"]: _plain(argument["value"]) for argument in stop["arguments"]}
            compared += len(read)
            if read != values:
                differences.append((op, stop["kind"], stop["key"], read, values))
    print(f"{len(told)} calls, stops: {dict(kinds)}, {compared} readings compared, {len(differences)} differ")
    assert differences == []
    assert {"boxed call", "kernel", "redispatch"} <= set(kinds)
    assert compared > 700


def _calls(stops: list[dict[str, Any]], told: list[Any]) -> Iterator[list[dict[str, Any]]]:
    """The stops of each call: from its boxed call on, of the same operator, to the next one."""
    rest = iter([*stops, None])
    stop = next(rest)
    for op, _ in told:
        while stop and (stop["op"] != op or stop["kind"] != "boxed call"):
            stop = next(rest)
        of_call = []
        while stop and stop["op"] == op and not (of_call and stop["kind"] == "boxed call"):
            of_call.append(stop)
            stop = next(rest)
        yield of_call


def _plain(value: Any) -> Any:
    """A reading as the script tells it."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict) and "defined" in value:
        kept = ("shape", "stride", "dtype", "device")
        return {name: value[name] for name in kept} if value["defined"] else None
    return value
