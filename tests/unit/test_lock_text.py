"""The dispatch lock of a trace: its text, how it is read back, and what differs from it."""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl
import pytest
from frames import FakeTrace, Hop, TraceBuilder, hop
from gpu_sample import sample  # noqa: F401
from gpu_trace import Sample

from tracer.analysis.lock import lock_of
from tracer.analysis.lock_difference import compare_locks
from tracer.analysis.lock_text import LockError, load, read, written
from tracer.report.lock_lines import change_lines

SCRIPT = "/home/user/project/train.py"


def mm(*below: Hop, line: int = 7, **columns: object) -> Hop:
    return hop(
        *("aten::mm", "AutogradCPU"), hop("aten::mm", "CPU", *below), source=f"{SCRIPT}:{line}", **columns
    )


def trace_of(*roots: Hop, texts: dict[int, str] | None = None, torch: str = "2.13.0+cpu") -> FakeTrace:
    made = TraceBuilder().calls(*roots).trace()
    made.environment["torch"] = torch
    rows = [{"source": f"{SCRIPT}:{line}", "text": text} for line, text in (texts or {}).items()]
    made.source_lines = pl.DataFrame(rows, schema=made.source_lines.schema)
    return made


def text_of(trace: FakeTrace) -> str:
    """Without the first lines, which are the same in all."""
    return written(lock_of(trace)).split("\n\n", 1)[1]


def test_the_text() -> None:
    trace = trace_of(
        mm(hop("aten::resolve_conj", "CPU"), hop("aten::resolve_conj", "CPU")), mm(), texts={7: "a  @ b"}
    )
    assert text_of(trace) == (
        "train.py: a @ b\n"
        "  aten::mm [AutogradCPU] mm_AutogradCPU\n"
        "    -> aten::mm [CPU] mm_CPU\n"
        "  aten::mm [AutogradCPU] mm_AutogradCPU\n"
        "    -> aten::mm [CPU] mm_CPU\n"
        "      2 x aten::resolve_conj [CPU] resolve_conj_CPU\n"
    )
    assert written(lock_of(trace)).startswith("tracer dispatch lock 1, torch 2.13.0+cpu\n# ")


def test_how_often_and_when_a_path_ran_does_not_matter() -> None:
    once = text_of(trace_of(mm(), mm(line=8)))
    assert once == text_of(trace_of(mm(line=8), mm(), mm(), mm(self_ns=77)))


def test_a_line_is_known_by_its_text_and_without_one_by_its_number() -> None:
    assert text_of(trace_of(mm(), texts={7: "a @ b"})) == text_of(trace_of(mm(line=9), texts={9: "a @ b"}))
    assert text_of(trace_of(mm())).startswith("train.py:7\n")


def test_lines_with_one_text_are_one_section() -> None:
    lock = lock_of(trace_of(mm(), mm(line=9), texts={7: "a @ b", 9: "a @ b"}))
    (section,) = lock.sections.values()
    assert (len(section.chains), section.lines) == (1, ("train.py:7", "train.py:9"))


def test_counts_of_neighbours_become_a_range() -> None:
    conj = hop("aten::resolve_conj", "CPU")
    assert "2..4 x aten::resolve_conj" in text_of(trace_of(mm(conj, conj), mm(*[conj] * 4), mm(*[conj] * 3)))


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("/home/user/project/parts/net.py", "parts/net.py"),
        ("/usr/lib/python3.11/site-packages/library/net.py", "library/net.py"),
        ("/usr/lib/python3.11/parts/none.py", "parts/none.py"),
        ("/somewhere/else/net.py", "net.py"),
    ],
)
def test_paths_are_relative_to_the_script(file: str, shown: str) -> None:
    assert text_of(trace_of(hop("aten::mm", "CPU", source=f"{file}:3"))).startswith(f"{shown}:3\n")


def test_a_script_below_the_folder_where_it_ran() -> None:
    trace = trace_of(mm(), hop("aten::mm", "CPU", source="/home/user/project/other/net.py:3"))
    trace.environment["argv"] = ["other/train.py"]
    assert list(lock_of(trace).sections) == ["../train.py:7", "net.py:3"]


def test_addresses_and_places_of_python_kernels_are_left_out() -> None:
    text = text_of(
        trace_of(
            hop("my::op", "CPU", source=f"{SCRIPT}:1", kernel="__main__.kernel (/home/user/k.py:9)"),
            hop("my::two", "CPU", source=f"{SCRIPT}:1", kernel="libmine.so+0x7f12"),
        )
    )
    assert "  my::op [CPU] __main__.kernel\n" in text
    assert "  my::two [CPU] libmine.so+unknown\n" in text


def test_backward_is_a_section_of_its_own_after_the_line() -> None:
    backward = mm(backward_node="MmBackward0", forward_hop=0)
    nobodys = hop("aten::detach", "CPU", source=f"{SCRIPT}:9", backward_node="AccumulateGrad")
    headings = list(lock_of(trace_of(mm(), backward, nobodys)).sections)
    assert headings == ["train.py:7", "backward MmBackward0 of train.py:7", "backward AccumulateGrad"]


def test_calls_that_did_not_end_and_ranges_are_left_out() -> None:
    range_op = hop("profiler::_record_function_enter_new", "CPU", source=f"{SCRIPT}:1")
    cut = hop("aten::relu", "CPU", hop("aten::clamp", "CPU", open=True), source=f"{SCRIPT}:2")
    assert list(lock_of(trace_of(range_op, cut, mm())).sections) == ["train.py:7"]


def test_what_ran_while_it_was_compiled_is_left_out() -> None:
    """A warm cache has no phases of the compiler, and nothing that runs in them."""
    warm = trace_of(mm(), mm(line=8))
    cold = trace_of(mm(), mm(hop("aten::empty", "Meta"), line=8), mm(line=8))
    traced = cold.hops.filter(pl.col("op") == "aten::empty")
    outermost = cold.hops.filter(pl.col("parent").is_null())
    for start, end in (
        (outermost["start_ns"][1], outermost["end_ns"][1]),  # the whole second call was traced
        (traced["start_ns"][0], traced["end_ns"][0]),  # or what was compiled inside of it
    ):
        phase = {"id": 0, "name": "dynamo", "process": 0, "thread": 100, "start_ns": start, "end_ns": end}
        cold.compile_phases = pl.DataFrame([phase], schema=cold.compile_phases.schema)
        assert text_of(cold) == text_of(warm)
    other = {**phase, "thread": 101}
    cold.compile_phases = pl.DataFrame([other], schema=cold.compile_phases.schema)
    assert "aten::empty" in text_of(cold)


def test_only_steady_steps() -> None:
    trace = trace_of(mm(phase="warmup"), mm(line=8, phase="steady"))
    assert list(lock_of(trace, steady=True).sections) == ["train.py:8"]
    assert len(lock_of(trace).sections) == 2


def test_of_a_gpu(sample: Sample) -> None:  # noqa: F811
    text = written(lock_of(sample.trace))
    chain = text[text.index("  aten::linear [AutogradCUDA]") :]
    assert "\n          library cublasSgemm_v2\n" in chain or "library cublas" in chain
    assert "GPU matrix product (GEMM)" in text
    assert "GPU memcpy" in text
    assert "wait cuda" in text
    assert "cudaLaunchKernel" not in text
    assert not [word for word in ("sm80", "sm90", "0x", "nvjet") if word in text]


def test_a_lock_is_read_as_it_was_written(sample: Sample) -> None:  # noqa: F811
    lock = lock_of(sample.trace)
    text = written(lock)
    assert written(read(text)) == text
    assert compare_locks(read(text), lock) == []


EDITED = """\
tracer dispatch lock 1, torch 2.13.0+cpu

# by hand
train.py: a @ b
  aten::mm [AutogradCPU] mm_AutogradCPU
    -> aten::mm [CPU] mm_CPU
"""


def test_an_edited_lock_with_other_spaces_is_the_same() -> None:
    lock = lock_of(trace_of(mm(), texts={7: "a @ b"}))
    assert compare_locks(read(EDITED), lock) == []
    assert compare_locks(read(EDITED.replace("\n", "  \r\n") + "\n\n  # end"), lock) == []
    assert compare_locks(read("\n# of the team\n  # and more\n\n" + EDITED), lock) == []


def test_what_is_wrong_below_a_comment_has_its_own_line() -> None:
    for old, words in (("lock 1", "line 3: version 9"), ("dispatch lock 1", "line 3: not a dispatch lock")):
        with pytest.raises(LockError, match=words):
            read("# mine\n\n" + EDITED.replace(old, "lock 9" if old == "lock 1" else "x", 1))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("tracer dispatch lock 1", "my lock", "line 1: not a dispatch lock"),
        ("lock 1", "lock 9", "line 1: version 9 of the format; this tracer reads version 1"),
        ("train.py: a @ b\n", "", "line 4: a path without a heading"),
        ("    ->", "      ->", "line 6: indented too far"),
        ("    ->", "   ->", "line 6: indented by 3 spaces"),
        ("    ->", "\t->", "line 6: indented by a tab"),
        ("# by hand", "<<<<<<< ours", "line 3: a merge conflict"),
        ("-> aten", "4..2 x aten", "line 6: 4..2 x: give 2 x or 2..4 x"),
    ],
)
def test_a_lock_that_was_edited_wrongly(old: str, new: str, words: str) -> None:
    with pytest.raises(LockError) as error:
        read(EDITED.replace(old, new, 1))
    assert str(error.value).startswith(words)


def test_an_empty_file_is_not_a_lock() -> None:
    with pytest.raises(LockError, match="line 1: not a dispatch lock"):
        read("")


def difference(before: FakeTrace, after: FakeTrace) -> list[str]:
    changes = compare_locks(read(written(lock_of(before))), lock_of(after))
    return [line for change in changes for line in change_lines(change)]


def test_another_kernel() -> None:
    assert difference(
        trace_of(mm(), texts={7: "a @ b"}),
        trace_of(
            hop("aten::mm", "AutogradCPU", hop("aten::mm", "CPU", kernel="mine"), source=f"{SCRIPT}:9"),
            texts={9: "a @ b"},
        ),
    ) == [
        "train.py: a @ b",
        "  at train.py:9",
        "  other paths:",
        "     aten::mm [AutogradCPU] mm_AutogradCPU",
        "    -  -> aten::mm [CPU] mm_CPU",
        "    +  -> aten::mm [CPU] mine",
    ]


def test_a_new_line_and_one_that_is_gone() -> None:
    lines = difference(trace_of(mm()), trace_of(mm(line=8)))
    assert lines[:2] == ["train.py:8", "  this line is not in the lock:"]
    assert lines[2] == "    +aten::mm [AutogradCPU] mm_AutogradCPU"
    assert lines[4:6] == ["train.py:7", "  the run did not call this line, or called no op there:"]
    assert lines[6] == "    -aten::mm [AutogradCPU] mm_AutogradCPU"


def test_an_edited_line_is_compared_with_what_it_was() -> None:
    before = trace_of(mm(), mm(line=8), texts={7: "loss = a @ weight", 8: "x = first(b)"})
    assert (
        difference(before, trace_of(mm(), mm(line=8), texts={7: "loss = b @ weight", 8: "x = first(b)"}))
        == []
    )
    other = mm(hop("aten::resolve_conj", "CPU"))
    lines = difference(before, trace_of(other, mm(line=8), texts={7: "loss = b @ weight", 8: "x = first(b)"}))
    assert lines[:4] == [
        "train.py: loss = b @ weight",
        "  at train.py:7",
        "  was train.py: loss = a @ weight",
        "  other paths:",
    ]
    assert lines[-1] == "    +    aten::resolve_conj [CPU] resolve_conj_CPU"


def test_another_text_is_another_line() -> None:
    lines = difference(
        trace_of(mm(), texts={7: "loss = a @ w"}), trace_of(mm(), texts={7: "return stack(x)"})
    )
    assert "  this line is not in the lock:" in lines
    assert "  the run did not call this line, or called no op there:" in lines


def test_counts_within_those_of_the_lock_are_no_change() -> None:
    conj = hop("aten::resolve_conj", "CPU")
    locked = trace_of(mm(conj, conj), mm(conj, conj, conj, conj))
    assert difference(locked, trace_of(mm(conj, conj, conj))) == []
    assert "    -    2..4 x aten::resolve_conj [CPU] resolve_conj_CPU" in difference(
        locked, trace_of(mm(conj))
    )


def test_of_several_paths_of_an_op_the_nearest_is_compared() -> None:
    small = hop("aten::relu", "CPU", source=f"{SCRIPT}:7")
    large = hop("aten::relu", "CPU", *[hop(f"aten::part{n}", "CPU") for n in range(5)], source=f"{SCRIPT}:7")
    other = hop("aten::relu", "CPU", *[hop(f"aten::part{n}", "CPU") for n in range(6)], source=f"{SCRIPT}:7")
    changed = difference(trace_of(small, large), trace_of(small, other))
    assert [line for line in changed if line.startswith(("    -", "    +"))] == [
        "    +  aten::part5 [CPU] part5_CPU"
    ]


def test_long_paths_are_compared_line_by_line() -> None:
    def long(kernel: str) -> Hop:
        parts = [hop(f"aten::p{n % 7}", "CPU", hop("aten::same", "CPU")) for n in range(300)]
        parts[150] = hop("aten::p9", "CPU", kernel=kernel)
        return hop("aten::gru", "CPU", *parts, source=f"{SCRIPT}:7")

    changed = [line for line in difference(trace_of(long("one")), trace_of(long("two"))) if line[4] in "+-"]
    assert changed == ["    -  aten::p9 [CPU] one", "    +  aten::p9 [CPU] two"]


def test_only_a_regular_file_is_read(tmp_path: Path) -> None:
    """A pipe would wait for a writer, and /dev/zero has no end."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="it is not a regular file"):
            load(path)
    (tmp_path / "good.lock").write_text("tracer dispatch lock 1\n")
    assert load(tmp_path / "good.lock").sections == {}


def test_a_lock_of_any_size(tmp_path: Path) -> None:
    with (tmp_path / "large.lock").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(LockError, match="it is larger than 64 MiB, which no lock is"):
        load(tmp_path / "large.lock")


def test_a_version_of_any_length() -> None:
    with pytest.raises(LockError, match="line 1: not a dispatch lock"):
        read(f"tracer dispatch lock {'1' * 5000}\n")
