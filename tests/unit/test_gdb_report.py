"""The report of a gdb session on made stops."""

from __future__ import annotations

from typing import Any

import pytest

from tracer.debugger import functions
from tracer.debugger.findings import Findings, level, missing
from tracer.debugger.report import render


def frame(function: str, **other: Any) -> dict[str, Any]:
    plain = {"wrapper": False, "plumbing": False, "library": "libtorch_cpu.so", "offset": 0, "file": None}
    return {"function": function, **plain, "line": 1, "inline": False, "tail_call": False, **other}


def stop(number: int, thread: int = 7, **other: Any) -> dict[str, Any]:
    return {
        "stop": number, "spec": "aten::mm", "kind": "call", "op": "aten::mm", "key": None, "hit": number,
        "function": "at::_ops::mm::call", "thread": thread, "thread_name": "python", "file": None,
        "line": None, "arguments": [], "locals": [], "python": [],
        "frames": [frame("at::_ops::mm::call")], **other,
    }  # fmt: skip


def report(*records: dict[str, Any]) -> str:
    return render(Findings("title", ["python"], "3.11", "2.13", "gdb 13", "symbols", records=list(records)))


def test_the_dispatchers_own_frames_are_folded() -> None:
    text = report(
        stop(
            1,
            frames=[
                frame("wrapper_CPU_mm", wrapper=True),
                frame("c10::callUnboxedKernelFunction", plumbing=True),
                frame("c10::KernelFunction::call", plumbing=True),
                frame("c10::Dispatcher::call", plumbing=True),
                frame("at::_ops::mm::call"),
                frame("c10::Dispatcher::callBoxed", plumbing=True),
            ],
        )
    )
    assert "#0   wrapper_CPU_mm [wrapper]" in text
    assert "     ... 3 frames of the dispatcher\n#4   at::_ops::mm::call" in text
    assert "#5   c10::Dispatcher::callBoxed" in text  # alone it is as short as the fold


def test_frames_of_the_stop_before_are_folded_until_the_last_stop() -> None:
    outer = [frame(f"outer{number}") for number in range(5)]
    stops = [
        stop(1, frames=outer),
        stop(2, frames=[frame("inner"), *outer]),
        stop(3, frames=[frame("other"), *outer[1:]]),
        stop(4, frames=[frame("last"), *outer]),
    ]
    first, second, third, last = report(*stops).split("## Stop ")[1:]
    assert "as at the stop before" not in first + last
    assert last.count("outer") == 5
    assert "#0   inner" in second
    assert "     ... 5 frames and the Python stack as at the stop before" in second
    assert "outer" not in second
    assert "     ... 4 frames and the Python stack as at the stop before" in third


def test_a_kernels_wrapper_and_its_body_are_one_stop() -> None:
    wrapper = stop(2, kind="kernel", key="CPU", function="wrapper_mm", file="functor.h", line=451)
    body = stop(3, kind="body", function="wrapper_mm", file="RegisterCPU.cpp", line=8425)
    text = report(stop(1), wrapper, body, stop(4, kind="body", function="another"))
    assert "## Stop 2" not in text
    assert "| `aten::mm [CPU]` | `wrapper_mm`" in text
    assert "`aten::mm [CPU]`, hit 3 of this function, RegisterCPU.cpp:8425" in text
    assert "## Stop 4: `another`" in text


def test_arguments_that_are_the_same_are_told_once() -> None:
    values = [{"name": "self", "type": "at::Tensor const&", "value": None}]
    first, second, last = report(*(stop(n, arguments=values) for n in (1, 2, 3))).split("## Stop ")[1:]
    assert "at::Tensor" in first
    assert "Arguments as at the stop before" in second
    assert "at::Tensor" not in second
    assert "at::Tensor" in last


def test_another_thread_has_its_own_frames() -> None:
    outer = [frame(f"outer{number}") for number in range(5)]
    stops = [stop(number, frames=outer, thread=number) for number in (1, 2, 3)]
    assert "as at the stop before" not in report(*stops)


def test_installed_packages_are_named_without_their_environment() -> None:
    python = [
        ["/opt/env/lib/python3.11/site-packages/torch/_tensor.py", "backward", 5],
        ["/home/me/run.py", "f", 2],
    ]
    text = report(stop(1, python=python))
    assert "py   torch/_tensor.py:5  backward\npy   /home/me/run.py:2  f" in text


def test_a_line_without_code_is_said() -> None:
    text = report(stop(1, kind="line", spec="own.cpp:7", file="own.cpp", line=8))
    assert "hit 1 of this line, the next one with code after 7, own.cpp:8" in text


def test_threads_have_a_column_if_there_are_several() -> None:
    assert "| thread |" not in report(stop(1), stop(2))
    assert "| thread |" in report(stop(1), stop(2, thread=8))


def test_what_is_not_read_says_why() -> None:
    unread = {"name": "a", "type": "int", "value": {"unknown": True, "why": "no memory"}}
    later = {"name": "b", "type": "int", "value": {"unset": 12}}
    text = report(stop(1, arguments=[unread], locals=[later]))
    assert "| not read: no memory " in text
    assert "Locals that are not set yet: `b` (line 12)" in text


def test_lines_of_the_c_library_are_no_debug_build() -> None:
    trap = stop(1, frames=[frame("pthread_kill", library="libc.so.6", file="pthread_kill.c")])
    assert level([trap], overlay=(), stripped=False).startswith("symbols")
    own = stop(1, frames=[frame("scaled", library="libown.so", file="own.cpp")])
    assert level([own], overlay=(), stripped=False).startswith("DWARF")


@pytest.mark.parametrize(
    ("op", "left_out", "said"),
    [
        ("aten::mm", 3, "aten::mm: 3 more op calls were not recorded; --limit 0 records all"),
        (None, 1, "aten::mm: 1 more hit was not recorded; --limit 0 records all"),
    ],
)
def test_a_limit_counts_op_calls(op: str | None, left_out: int, said: str) -> None:
    group = {"spec": "aten::mm", "counting": None, "left_out": left_out, "errors": [], "recorded": 1}
    assert missing({"groups": [group], "points": [{"spec": "aten::mm", "op": op}]}) == [said]


def test_the_stubs_of_mold_are_no_functions() -> None:
    found = [("_ZN2at4_ops2mm4callERKNS_6TensorES4_", 1), ("_ZN2at4_ops2mm4callERKNS_6TensorES4_$plt", 2)]
    assert functions._without_stubs(found) == found[:1]
