"""What `tracer explain` reads and writes, on small texts in torch's own form."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from frames import TraceBuilder, hop

from tracer.analysis.decomposition import decompose
from tracer.dispatch.declarations import Declarations
from tracer.dispatch.operators import Operators
from tracer.dispatch.report import Explanation, Traced, explain_lines
from tracer.dispatch.table import (
    DispatchTable,
    Entry,
    folded,
    key_names,
    parse_registrations,
    parse_table,
)

TABLE = """\
Undefined: registered at /src/RegisterCompositeExplicitAutograd_0.cpp:7 [default backend kernel]
CPU: registered at /src/RegisterCPU_0.cpp:3 [kernel]
CUDA: registered at /src/RegisterCompositeExplicitAutograd_0.cpp:7 [default backend kernel]
Meta: registered at /lib/_meta_registrations.py:54 [kernel]
Conjugate: fallthrough registered at /src/ConjugateFallback.cpp:21 [kernel]
Python: registered at /src/PythonFallbackKernel.cpp:192 [backend fallback]
AutogradCPU: registered at /src/VariableType_8.cpp:9 [autograd kernel]
PrivateUse1: registered by RegisterOperators [kernel]
"""
REGISTRATIONS = """\
name: aten::mm
schema: aten::mm(Tensor self, Tensor mat2) -> Tensor
debug: registered at /src/RegisterSchema.cpp:6
alias analysis kind: FROM_SCHEMA
CPU: registered at /src/RegisterCPU_0.cpp:3 :: (Tensor _0, Tensor _1) -> Tensor _0 [ boxed unboxed ]
Meta: registered at /lib/_meta_registrations.py:54 :: (none) [ boxed ]
Meta (inactive): registered at /src/RegisterMeta_0.cpp:8 :: (Tensor _0) -> Tensor _0 [ boxed unboxed ]
CompositeExplicitAutograd[alias]: registered at /src/RegisterCompositeExplicitAutograd_0.cpp:7 :: () [ boxed ]
"""
FUNCTIONS = """\
# A comment before the entries
- func: mm(Tensor self, Tensor mat2) -> Tensor
  structured_delegate: mm.out
  dispatch:
    # a comment among them
    SparseCPU, SparseCUDA: _sparse_mm

- func: mm.out(Tensor self, Tensor mat2, *, Tensor(a!) out) -> Tensor(a!)
  structured: True
  dispatch:
    CPU: mm_out_cpu
  autogen: mm.other_out, mm.third_out  # made

# What stands here belongs to no entry
- func: add_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)
"""
DERIVATIVES = """\
- name: mm(Tensor self, Tensor mat2) -> Tensor
  self: mm_mat1_backward(grad, mat2)

- name: add.Tensor(Tensor self, Tensor other) -> Tensor
  self: grad
"""


@pytest.fixture
def declarations(tmp_path: Path) -> Declarations:
    for place, text in (
        ("ATen/native/native_functions.yaml", FUNCTIONS),
        ("autograd/derivatives.yaml", DERIVATIVES),
    ):
        path = tmp_path / "packaged" / place
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return Declarations(tmp_path)


def table(op: str = "aten::mm", entries: str = TABLE) -> DispatchTable:
    facts, registrations = parse_registrations(REGISTRATIONS)
    return DispatchTable(op, facts["schema"], ("core",), parse_table(entries), registrations, ("XLA", "Lazy"))


def text_of(explanation: Explanation, **options: bool) -> str:
    return "\n".join(text for _, text in explain_lines(explanation, **options))


def test_a_table_is_read_line_by_line() -> None:
    entries = parse_table(TABLE)
    assert [entry.key for entry in entries][:3] == ["Undefined", "CPU", "CUDA"]
    assert entries[1] == Entry("CPU", "/src/RegisterCPU_0.cpp:3", "kernel", False)
    assert entries[4] == Entry("Conjugate", "/src/ConjugateFallback.cpp:21", "kernel", True)
    assert entries[7].registered_at == "registered by RegisterOperators"
    with pytest.raises(ValueError, match="not known: 'what is this'"):
        parse_table("what is this")


def test_registrations_tell_aliases_and_what_was_replaced() -> None:
    mm = table()
    assert mm.schema == "aten::mm(Tensor self, Tensor mat2) -> Tensor"
    assert mm.aliases(mm.entries[0]) == ("CompositeExplicitAutograd",)
    assert mm.aliases(mm.entries[1]) == ()
    assert mm.replaced(mm.entries[3]) == ("/src/RegisterMeta_0.cpp:8",)
    assert mm.replaced(mm.entries[1]) == ()
    with pytest.raises(ValueError, match="not known"):
        parse_registrations("CPU: something else")


def test_entries_of_one_registration_are_folded() -> None:
    groups = [[entry.key for entry in group] for group in folded(parse_table(TABLE))]
    assert groups[0] == ["Undefined", "CUDA"]
    assert [len(group) for group in groups] == [2, 1, 1, 1, 1, 1, 1]


def test_keys_of_a_key_set() -> None:
    assert key_names("DispatchKeySet(CPU, CUDA)") == ("CPU", "CUDA")


OPERATORS = Operators(
    [
        "aten::mm",
        "aten::mm.out",
        "aten::bmm",
        "aten::add.Tensor",
        "quantized::add_relu",
        "mine::mm",
        "mine::op",
    ]
)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("aten::mm", ["aten::mm", "aten::mm.out"]),
        ("mm", ["aten::mm", "aten::mm.out"]),
        ("mm.default", ["aten::mm"]),
        ("mm.out", ["aten::mm.out"]),
        ("aten::add", ["aten::add.Tensor"]),
        ("aten::add.default", []),
        ("add_relu", ["quantized::add_relu"]),
        ("mine::mm", ["mine::mm"]),
        ("aten.mm.out", ["aten::mm.out"]),
        ("torch.ops.mine.op.default", ["mine::op"]),
        ("aten::mmm", []),
        ("", []),
    ],
)
def test_names_of_operators(name: str, found: list[str]) -> None:
    assert OPERATORS.named(name) == found


def test_near_names() -> None:
    assert OPERATORS.near("aten::mmm") == ["aten::mm", "aten::bmm"]
    assert OPERATORS.near("bm") == ["aten::bmm"]
    assert OPERATORS.near("add_rely") == ["quantized::add_relu"]
    assert OPERATORS.near("mine::pop") == ["mine::op"]
    assert OPERATORS.near("xyzzy") == []


def test_declarations_are_the_text_of_the_files(declarations: Declarations) -> None:
    mm = declarations.function("aten::mm")
    assert mm is not None
    assert (mm.file, mm.line, mm.delegate) == ("native_functions.yaml", 2, "mm.out")
    assert mm.text.splitlines()[-1] == "    SparseCPU, SparseCUDA: _sparse_mm"
    assert "comment" not in mm.text
    out = declarations.delegate(mm)
    assert out is not None
    assert (out.line, out.autogen) == (8, ("mm.other_out", "mm.third_out"))
    assert declarations.function("aten::mm.third_out") == out
    assert declarations.function("mine::mm") is None
    add = declarations.function("aten::add_.Tensor")
    assert add is not None
    assert add.line == 15


def test_derivatives_of_variants(declarations: Declarations) -> None:
    for op, name in (("aten::mm", "mm"), ("aten::add_.Tensor", "add.Tensor"), ("aten::mm_copy", "mm")):
        formula = declarations.derivative(op)
        assert formula is not None
        assert formula.name == name
    assert declarations.derivative("aten::mm.out") is None
    assert declarations.derivative("mine::mm") is None


def recorded() -> TraceBuilder:
    """Two matmuls that call mm, one that calls expand, reshape twice and bmm; mm goes through two keys."""
    mm = hop("aten::mm", "AutogradCPU", hop("aten::mm", "CPU", hop("aten::empty", "CPU")))
    mm.children[0].columns["kind"] = "redispatch"
    batched = [hop(f"aten::{name}", "CPU") for name in ("expand", "reshape", "reshape", "bmm")]
    builder = TraceBuilder()
    builder.calls(hop("aten::matmul", "AutogradCPU", mm), times=2)
    builder.calls(hop("aten::matmul", "AutogradCPU", *batched, raised=True), thread=7)
    return builder


def test_what_a_call_called() -> None:
    hops = recorded().hops()
    found = decompose(hops, "aten::matmul")
    assert found.calls == 3
    assert found.called.rows() == [
        (["aten::mm"], 2),
        (["aten::expand", "aten::reshape", "aten::reshape", "aten::bmm"], 1),
    ]
    assert found.keys.select("key", "hops", "raised").rows() == [("AutogradCPU", 3, 1)]


def test_a_redispatch_belongs_to_its_call() -> None:
    found = decompose(recorded().hops(), "aten::mm")
    assert found.calls == 2
    assert found.keys.select("key", "hops").rows() == [("AutogradCPU", 2), ("CPU", 2)]
    assert found.called.rows() == [(["aten::empty"], 2)]
    empty = decompose(recorded().hops(), "aten::empty")
    assert empty.called.rows() == [([], 2)]
    assert not empty.calls_others


def test_an_op_that_did_not_run() -> None:
    found = decompose(recorded().hops(), "aten::nothing")
    assert (found.calls, len(found.keys), len(found.called)) == (0, 0, 0)
    assert not found.calls_others


EXPLAINED = """\
aten::mm(Tensor self, Tensor mat2) -> Tensor
  tags: core

Dispatch table: 8 keys, lowest priority first (torch 2.13.0)
  Undefined, CUDA [default backend kernel]
    RegisterCompositeExplicitAutograd_0.cpp:7
    registered for CompositeExplicitAutograd
  CPU [kernel]
    wrapper_CPU_mm  RegisterCPU_0.cpp:3
  Meta [kernel]
    _meta_registrations.py:54
    replaces the kernel from RegisterMeta_0.cpp:8
  AutogradCPU [autograd kernel]
    VariableType_8.cpp:9
  PrivateUse1 [kernel]
    registered by RegisterOperators
  Fallbacks of whole keys [backend fallback]
    Python                          PythonFallbackKernel.cpp:192
  Fallthrough: these keys pass the call on to the next key
    Conjugate                       ConjugateFallback.cpp:21 [kernel]
  No kernel at 2 keys; a call there raises
    XLA, Lazy

native_functions.yaml:2
  - func: mm(Tensor self, Tensor mat2) -> Tensor
    structured_delegate: mm.out
    dispatch:
      SparseCPU, SparseCUDA: _sparse_mm
native_functions.yaml:8, the structured kernel that it delegates to
  - func: mm.out(Tensor self, Tensor mat2, *, Tensor(a!) out) -> Tensor(a!)
    structured: True
    dispatch:
      CPU: mm_out_cpu
    autogen: mm.other_out, mm.third_out  # made

derivatives.yaml:1
  - name: mm(Tensor self, Tensor mat2) -> Tensor
    self: mm_mat1_backward(grad, mat2)"""


def test_the_text(declarations: Declarations) -> None:
    function = declarations.function("aten::mm")
    assert function is not None
    mm = Explanation(
        "aten::mm",
        "2.13.0",
        table=table(),
        kernels={"/src/RegisterCPU_0.cpp:3": "wrapper_CPU_mm"},
        declared=True,
        function=function,
        delegate=declarations.delegate(function),
        derivative=declarations.derivative("aten::mm"),
    )
    assert text_of(mm) == EXPLAINED


def with_trace(
    torch: str, here: str = "2.13.0", key: str = "CPU", place: str = "/other/RegisterCPU_0.cpp:3"
) -> Explanation:
    """What ran at `CPU` ran at `key` then, where it was registered at `place`."""
    at = pl.col("key") == "CPU"
    hops = recorded().hops().with_columns(pl.col("key").cast(pl.String))
    hops = hops.with_columns(
        registered_at=pl.when(at).then(pl.lit(place)),
        key=pl.when(at).then(pl.lit(key)).otherwise("key"),
    )
    traced = Traced("run.trace", torch, torch == here, decompose(hops, "aten::mm"))
    return Explanation("aten::mm", here, table=table(), traced=traced)


def test_what_ran_stands_at_the_keys() -> None:
    text = text_of(with_trace("2.13.0"))
    assert "  CPU [kernel]  ran 2 x\n    mm_CPU  RegisterCPU_0.cpp:3\n" in text
    assert "  AutogradCPU [autograd kernel]  ran 2 x\n    mm_AutogradCPU  VariableType_8.cpp:9\n" in text
    assert "In run.trace (torch 2.13.0)\n  2 op calls, 4 hops\n" in text
    assert text.endswith("  The op calls that a call made\n    2 of 2: aten::empty")


@pytest.mark.parametrize(
    ("key", "above"),
    [
        ("CPU", "RegisterCPU_0.cpp:3"),
        ("CUDA", "registered for CompositeExplicitAutograd"),
        ("Python", "PythonFallbackKernel.cpp:192"),
        ("Conjugate", "ConjugateFallback.cpp:21 [kernel]"),
        ("Lazy", "XLA, Lazy"),
    ],
)
def test_a_kernel_that_only_the_trace_has_is_beside_its_key(key: str, above: str) -> None:
    text = text_of(with_trace("2.13.0", key=key, place="/home/shop/mine.cpp:12"))
    assert f"{above}\n    in run.trace: {key}  mm_CPU  mine.cpp:12  ran 2 x\n" in text
    assert text.count("in run.trace: ") == 1
    assert "in run.trace: " not in text_of(with_trace("2.11.0", key=key, place="/home/shop/mine.cpp:12"))


def test_another_torch_is_said_and_its_counts_stay_out_of_the_table() -> None:
    text = text_of(with_trace("2.11.0"))
    assert "ran 2 x" not in text
    assert "recorded with torch 2.11.0, and the table above is that of\n  torch 2.13.0, which is " in text
    assert "  2 op calls, 4 hops\n" in text


def test_without_a_table_the_trace_is_shown() -> None:
    traced = Traced("run.trace", "2.13.0", False, decompose(recorded().hops(), "aten::nothing"))
    text = text_of(Explanation("mine::op", missing="torch is not installed here.", traced=traced))
    expected = "mine::op\n  torch is not installed here.\n\nIn run.trace (torch 2.13.0)\n  It did not run."
    assert text == expected


def test_many_keys_fit_into_80_columns_or_are_all_named() -> None:
    keys = [f"Backend{number}" for number in range(40)]
    lines = "".join(f"{key}: registered at /src/a.cpp:1 [math kernel]\n" for key in keys)
    everything = Explanation("aten::mm", "2.13.0", table=table(entries=lines))
    short, long = text_of(everything), text_of(everything, every_key=True)
    assert "  Backend0, Backend1, Backend2, Backend3, Backend4 and 35 more [math kernel]" in short
    assert all(f"{key}," in long or f"{key} " in long for key in keys)
    assert max(map(len, short.splitlines() + long.splitlines())) <= 80


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("AutogradCPU: registered at /a.cpp:1 [math kernel]", "It is a composite: autograd records"),
        ("AutogradCPU: registered at /a.cpp:1 [backend fallback]", "its keys run the fallback (a.cpp:1)"),
        ("AutogradCPU: registered at /m.cpp:5 [autograd kernel]", "for autograd is registered at m.cpp:5"),
        ("CPU: registered at /a.cpp:1 [kernel]", "Nothing is registered for autograd."),
    ],
)
def test_why_there_is_no_formula(entry: str, why: str) -> None:
    assert why in text_of(Explanation("aten::mm", "2.13.0", table=table(entries=entry), declared=True))
