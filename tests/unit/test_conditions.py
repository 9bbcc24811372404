"""Which names `tracer gdb --when` takes."""

from __future__ import annotations

import pytest

from tracer.debugger.breakpoints import check_condition
from tracer.debugger.debugger_errors import DebuggerError


@pytest.mark.parametrize(
    "text",
    [
        "shape(0)[0] > 128 and dim(1) == 2",
        "any(size == 7 for size in shape(0))",
        "all(any(size > n for size in shape(n)) for n in range(tensors))",
    ],
)
def test_names_that_a_condition_may_use(text: str) -> None:
    check_condition(text)


@pytest.mark.parametrize(
    "text",
    [
        "open('x')",
        "any(open(n) for n in shape(0))",
        "any(any(open(n) for n in shape(m)) for m in range(tensors))",
    ],
)
def test_another_name_is_refused_however_deep_it_is(text: str) -> None:
    with pytest.raises(DebuggerError, match="--when does not know open; use shape stride"):
        check_condition(text)


def test_what_is_no_expression_is_refused() -> None:
    with pytest.raises(DebuggerError, match=r"--when: .*: shape\(0\)\[0\] >"):
        check_condition("shape(0)[0] >")
