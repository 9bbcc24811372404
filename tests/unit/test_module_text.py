"""What the text of a module that Inductor generated says of its kernels."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from tracer.recording.compiled import module_text
from tracer.recording.compiled.module_text import stacks_of, uses_of_text

TRITON = """
# Topologically Sorted Source Nodes: [h, h_1], Original ATen: [aten.native_layer_norm, aten.gelu]
# Source node to ATen node mapping:
#   h => add, mul
triton_per_fused_gelu_native_layer_norm_0 = async_compile.triton('triton_', \'\'\'
def triton_per_fused_gelu_native_layer_norm_0(in_ptr0, xnumel):
    tmp0 = tl.load(in_ptr0)
\'\'\', device_str='cuda')


# Topologically Sorted Source Nodes: [], Original ATen: [mylib.twice]
triton_poi_fused_twice_1 = async_compile.triton('triton_poi_fused_twice_1', \'\'\'
\'\'\', device_str='cuda')

triton_unseen_2 = async_compile.triton('triton_unseen_2', \'\'\'
\'\'\', device_str='cuda')


    def call(self, args):
        # Topologically Sorted Source Nodes: [h, h_1], Original ATen: [aten.native_layer_norm, aten.gelu]
        stream0 = get_raw_stream(0)
        triton_per_fused_gelu_native_layer_norm_0.run(buf0, 8, stream=stream0)
        # Topologically Sorted Source Nodes: [linear], Original ATen: [aten.addmm]
        extern_kernels.addmm(arg1, buf0, out=buf1)
        triton_unseen_2.run(buf1, stream=stream0)
        # Topologically Sorted Source Nodes: [k], Original ATen: [aten.gelu]
        workspace_0 = empty_strided_cuda((4, ), (1, ), torch.uint8)
        stream0 = get_raw_stream(0)
        triton_per_fused_gelu_native_layer_norm_0.run(buf1, 8, stream=stream0)
        triton_poi_fused_twice_1.run(buf1, stream=stream0)
"""
CPP = """
cpp_fused_add_gelu_0 = async_compile.cpp_pybinding(['float*'], r'''
extern "C"  void  kernel(float* in_out_ptr0)
''')

    def call(self, args):
        # Topologically Sorted Source Nodes: [linear], Original ATen: [aten.t, aten.addmm]
        # [Provenance debug handles] extern_kernels.addmm:1
        extern_kernels.addmm(arg1, buf4, out=buf5)
        # [Provenance debug handles] cpp_fused_add_gelu_0:2
        cpp_fused_add_gelu_0(buf5)
        # [Provenance debug handles] cpp_fused_add_gelu_0:3
        cpp_fused_add_gelu_0(buf6)
"""
OPS = (
    *("aten::add.Tensor", "aten::gelu", "prims::gelu", "mylib::gelu", "aten::log", "aten::sigmoid"),
    *("aten::log_sigmoid", "aten::copy", "aten::copy_", "aten::div.Scalar", "aten::native_layer_norm"),
    *("prims::fma", "mylib::twice", "aten::index_put", "aten::put", "aten::index.Tensor", "aten::mul"),
)


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    known = SimpleNamespace(_dispatch_get_all_op_names=lambda: list(OPS))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__file__="/torch/__init__.py", _C=known))
    module_text._namespaces.cache_clear()
    yield
    module_text._namespaces.cache_clear()


def ops(uses: list[dict[str, object]]) -> list[list[str]]:
    return [[node["op"] for node in use["nodes"] if node["op"]] for use in uses]


def test_a_kernel_of_triton_has_the_ops_above_each_place_that_runs_it() -> None:
    """Without a comment there those above its definition, and never those of an op before it."""
    found = uses_of_text(TRITON, {})
    assert {name: ops(uses) for name, uses in found.items()} == {
        "triton_per_fused_gelu_native_layer_norm_0": [
            ["aten::native_layer_norm", "aten::gelu"],
            ["aten::gelu"],
        ],
        "triton_unseen_2": [[]],
        "triton_poi_fused_twice_1": [["mylib::twice"]],
    }
    first, second = found["triton_per_fused_gelu_native_layer_norm_0"]
    assert [node["dynamo"] for node in first["nodes"]] == [None, None, "h", "h_1"]
    assert [(node["op"], node["dynamo"]) for node in second["nodes"]] == [("aten::gelu", "k")]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("cpp_fused_add_gelu_0", ["aten::add", "aten::gelu"]),
        ("cpp_fused_gelu_mul_12", ["aten::gelu", "aten::mul"]),
        ("cpp_fused_add_copy__div_fma_3", ["aten::add", "aten::copy_", "aten::div", "prims::fma"]),
        ("cpp_fused_native_layer_norm_twice_0", ["aten::native_layer_norm", "mylib::twice"]),
        ("cpp_fused_log_sigmoid_0", []),  # log_sigmoid, or log and sigmoid
        ("cpp_fused_index_put_0", []),
        ("cpp_fused_add_index_put_log_0", ["aten::add", "aten::index_put", "aten::log"]),  # log is before put
        ("cpp_fused_mul_gelu_0", []),  # they are not sorted
        ("cpp_fused_add_captured_0", []),
        ("cpp_fused_0", []),
        ("cpp_bmm_gelu_0", []),
    ],
)
def test_the_name_of_a_kernel_of_cpp_is_read_if_it_can_be_read_in_one_way(
    name: str, wanted: list[str]
) -> None:
    text = CPP.replace("cpp_fused_add_gelu_0", name)
    assert ops(uses_of_text(text, {})[name]) == [wanted, wanted]


def stack(file: str, line: int, text: str) -> str:
    return f'  File "{file}", line {line}, in forward\n    {text}\n    ^^^^^\n'


def test_with_provenance_each_place_has_its_lines_if_they_are_of_this_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = ["x = relu(y)\n", "    z = gelu(x) + y\n", "w = mm(z)\n"]
    monkeypatch.setitem(linecache.cache, "/net.py", (1, None, lines, "/net.py"))
    here, there = stack("/net.py", 2, "z = gelu(x) + y"), stack("/net.py", 3, "w = mm(z)")
    of_torch = stack("/torch/nn/linear.py", 9, "return mm(x)")
    stacks = {
        "extern_kernels.addmm:1": [there + of_torch],
        "cpp_fused_add_gelu_0:2": [here],
        "cpp_fused_add_gelu_0:3": [
            *(here, there, stack("/net.py", 1, "x = relu(y) + 1"), stack("/other.py", 2, "z = gelu(x) + y")),
            *(stack("/net.py", 30, "z = gelu(x) + y"), "no stack"),
        ],
    }
    found = uses_of_text(CPP, stacks)
    assert [node["source"] for node in found["extern_kernels.addmm"][0]["nodes"]] == ["/net.py:3"] * 2
    one, several = found["cpp_fused_add_gelu_0"]
    assert [(node["op"], node["source"]) for node in one["nodes"]] == [
        ("aten::add", "/net.py:2"),
        ("aten::gelu", "/net.py:2"),
    ]
    # Which op is of which of two lines is not known.
    assert [(node["op"], node["source"]) for node in several["nodes"]] == [
        ("aten::add", None),
        ("aten::gelu", None),
        (None, "/net.py:2"),
        (None, "/net.py:3"),
    ]


@pytest.mark.parametrize("said", [None, "", "[]", "{", '{"version": 2.0}', '{"k:1": ["a stack"]}'])
def test_only_a_document_of_stacks_is_read(said: str | None) -> None:
    found = stacks_of(SimpleNamespace(inductor_provenance_stack_traces_str=said))
    assert found == ({"k:1": ["a stack"]} if said and "k:1" in said else {})
    assert stacks_of(object()) == {}
