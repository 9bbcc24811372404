"""A recording changes no error: type and text of every exception stay as they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from lazily import torch
from op_samples import Results, changed, outcome, seed, thrice

if TYPE_CHECKING:
    from torch.testing._internal.opinfo.core import OpInfo


def compare(folder: Path, run: Callable[[], Results]) -> Results:
    """Requires the same results and exceptions alone and recorded, and returns them."""
    alone, recorded, _ = thrice(run, folder)
    kinds = Counter(kind_of(result) for result in alone.values())
    print(f"{len(alone)} calls: {dict(kinds)}")
    assert kinds["aside"] < 0.05 * len(alone)
    assert not changed(alone, recorded)
    return alone


def kind_of(result: str) -> str:
    """The exception's type, "aside", or "returned" for a digest of results."""
    kind, colon, _ = result.partition(": ")
    return kind if colon or result == "aside" else "returned"


def run_error_inputs(operators: Sequence[OpInfo]) -> Results:
    results: Results = {}
    for operator in operators:
        if operator.error_inputs_func is None:
            continue
        seed()
        for index, error in enumerate(operator.error_inputs_func(operator, "cpu")):
            sample = error.sample_input
            name = f"{operator.name}.{operator.variant_test_name} {index}"
            results[name] = outcome(lambda: operator.op(sample.input, *sample.args, **sample.kwargs))  # noqa: B023
    return results


def test_error_inputs(tmp_path: Path) -> None:
    from torch.testing._internal.common_methods_invocations import op_db

    results = compare(tmp_path, lambda: run_error_inputs(op_db))
    raised = [result for result in results.values() if ": " in result]
    assert len(raised) > max(500, 0.98 * len(results))


BACKENDS: dict[str, Callable[[], torch.Tensor]] = {
    "sparse": lambda: torch.eye(3).to_sparse(),
    "csr": lambda: torch.eye(3).to_sparse_csr(),
    "mkldnn": lambda: torch.eye(3).to_mkldnn(),
    "quantised": lambda: torch.quantize_per_tensor(torch.eye(3), 0.1, 0, torch.quint8),
    "nested": lambda: torch.nested.nested_tensor([torch.eye(3), torch.ones(2, 3)]),
    "meta": lambda: torch.ones(3, 3, device="meta"),
}
# Segfaults in stock torch on csr and mkldnn tensors.
UNSAFE = {"aten::copy"}


def overloads(tensors: int) -> list[torch._ops.OpOverload]:
    """aten operators that can be called with as many tensors and nothing else."""
    safe = set(torch._C._dispatch_get_all_op_names()) - UNSAFE
    found = []
    for schema in torch._C._jit_get_all_schemas():
        name = f"{schema.name}.{schema.overload_name}".rstrip(".")
        required = [str(argument.type) for argument in schema.arguments if not argument.has_default_value()]
        public = name.startswith("aten::") and not name.startswith("aten::_")
        if name in safe and public and required == ["Tensor"] * tensors:
            packet = getattr(torch.ops.aten, schema.name.removeprefix("aten::"))
            found.append(getattr(packet, schema.overload_name or "default"))
    return sorted(found, key=str)


def call(overload: torch._ops.OpOverload, inputs: dict[str, torch.Tensor]) -> object:
    """`self` can be given by position only."""
    positional = [argument.name for argument in overload._schema.arguments if not argument.kwarg_only]
    return overload(
        *(inputs[name] for name in inputs if name in positional),
        **{name: tensor for name, tensor in inputs.items() if name not in positional},
    )


def call_on(backend: str) -> Results:
    results: Results = {}
    for tensors in (1, 2):
        for overload in overloads(tensors):
            inputs = {
                argument.name: BACKENDS[backend]()
                for argument in overload._schema.arguments
                if not argument.has_default_value()
            }
            seed()
            results[str(overload)] = outcome(lambda: (call(overload, inputs), inputs))  # noqa: B023
    return results


@pytest.mark.parametrize("backend", BACKENDS)
def test_operators_on_other_backends(tmp_path: Path, backend: str) -> None:
    results = compare(tmp_path, lambda: call_on(backend))
    missing = [result for result in results.values() if kind_of(result) == "builtins.NotImplementedError"]
    assert len(missing) > 30
    if backend != "meta":
        assert sum("Could not run 'aten::" in text for text in missing) > 100


def test_not_implemented_stays_what_it_is(tmp_path: Path) -> None:
    a, out = torch.eye(3).to_mkldnn(), torch.eye(3).to_mkldnn()
    results = compare(tmp_path, lambda: {"mm": outcome(lambda: torch.mm(a, a, out=out))})
    assert results["mm"].startswith("builtins.NotImplementedError: Could not run 'aten::mm.out' with")


def test_errors_of_python(tmp_path: Path) -> None:
    """A kernel and an autograd function in Python keep their exceptions, and the cause of them."""

    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            raise LookupError("in backward") from KeyError("cause")

    def backward() -> None:
        Failing.apply(torch.ones(2, requires_grad=True)).sum().backward()

    def kernel() -> None:
        with torch.library._scoped_library("tracertest", "FRAGMENT") as library:
            library.define("failing(Tensor x) -> Tensor")
            library.impl("failing", lambda x: {}[1], "CPU")
            torch.ops.tracertest.failing(torch.ones(2))

    def run() -> Results:
        with pytest.raises(LookupError) as caught:
            backward()
        cause = type(caught.value.__cause__).__name__
        return {"backward": outcome(backward), "cause": cause, "kernel": outcome(kernel)}

    assert compare(tmp_path, run) == {
        "backward": "builtins.LookupError: in backward",
        "cause": "KeyError",
        "kernel": "builtins.KeyError: 1",
    }
