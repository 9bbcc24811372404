"""Describes an operator, in lines of at most 80 columns (except longer names)."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import polars as pl

from tracer.analysis.decomposition import Decomposition
from tracer.dispatch.declarations import Declaration
from tracer.dispatch.table import DispatchTable, Entry, folded
from tracer.report.text import count, duration, registration

_WIDTH = 80
_MOST_SEQUENCES = 5
_FALLBACK = "backend fallback"
Line = tuple[str, str]
"""(role: title, heading or text; the text)"""


@dataclass(frozen=True)
class Traced:
    """What a trace shows of the operator, and whether its torch is that of the table."""

    file: str
    torch: str
    same_torch: bool
    decomposition: Decomposition


@dataclass(frozen=True)
class Explanation:
    """Everything known about one operator.

    `table` is None where there is none in this process, then `torch` is None too and `missing` says
    why. `declared` is False where torchgen is not installed. `kernels` has the names of kernel
    functions that are known without a trace, by the registration (`file:line`) of their entries.
    """

    op: str
    torch: str | None = None
    missing: str = ""
    table: DispatchTable | None = None
    kernels: dict[str, str] = field(default_factory=dict)
    declared: bool = False
    function: Declaration | None = None
    delegate: Declaration | None = None
    derivative: Declaration | None = None
    traced: Traced | None = None


def explain_lines(explanation: Explanation, *, every_key: bool = False) -> Iterator[Line]:
    """The sections, each after a blank line; `every_key` shows one line per key."""
    table, traced = explanation.table, explanation.traced
    schema = table.schema if table else explanation.op
    yield from (("title", line) for line in _wrapped(schema, "", "  "))
    if table:
        yield from (("text", line) for line in _wrapped(f"tags: {', '.join(table.tags) or 'none'}", "  "))
        yield from _table_lines(table, explanation, every_key)
        yield from _declaration_lines(explanation)
        yield from _derivative_lines(explanation, table)
    else:
        yield from _text(_wrapped(explanation.missing, "  "))
    if traced:
        yield from _traced_lines(traced, explanation)


def _table_lines(table: DispatchTable, explanation: Explanation, every_key: bool) -> Iterator[Line]:
    yield ("text", "")
    yield (
        "heading",
        f"Dispatch table: {count(len(table.entries), 'key')}, lowest priority first "
        f"(torch {explanation.torch})",
    )
    own = [entry for entry in table.entries if entry.rule != _FALLBACK and not entry.fallthrough]
    for group in folded(own):
        ran, kernel = _ran(group, explanation)
        mark = f"  ran {ran:,} x" if ran else ""
        yield from _text(_keys(group, f" [{group[0].rule}]{mark}", every_key))
        yield from _text(_kernel_lines(group[0], table, kernel))
        yield from _text(_of_the_program(group, explanation))
    shared = [entry for entry in table.entries if entry.rule == _FALLBACK and not entry.fallthrough]
    yield from _listed("Fallbacks of whole keys [backend fallback]", shared, explanation)
    through = [entry for entry in table.entries if entry.fallthrough]
    yield from _listed("Fallthrough: these keys pass the call on to the next key", through, explanation)
    if table.without:
        yield ("heading", f"  No kernel at {count(len(table.without), 'key')}; a call there raises")
        yield from _text(_names(table.without, "    ", "", every_key))
        without = [Entry(key, "", "", False) for key in table.without]
        yield from _text(_of_the_program(without, explanation))


def _kernel_lines(entry: Entry, table: DispatchTable, kernel: str | None) -> Iterator[str]:
    where = registration(entry.registered_at)
    parts = [kernel, where] if kernel else [where]
    line = "    " + "  ".join(parts)
    yield from [line] if len(line) <= _WIDTH else [f"    {part}" for part in parts]
    if aliases := [alias for alias in table.aliases(entry) if alias != "Autograd"]:
        yield f"    registered for {', '.join(aliases)}"
    for replaced in table.replaced(entry):
        yield f"    replaces the kernel from {registration(replaced)}"


def _listed(title: str, entries: Sequence[Entry], explanation: Explanation) -> Iterator[Line]:
    """One line a key: fallbacks and fallthroughs are mostly those of the key and not of the operator."""
    if not entries:
        return
    yield ("heading", f"  {title}")
    for entry in entries:
        ran, _ = _ran([entry], explanation)
        rule = f" [{entry.rule}]" if entry.rule != _FALLBACK else ""
        mark = f"  ran {ran:,} x" if ran else ""
        yield ("text", f"    {entry.key:<31} {registration(entry.registered_at)}{rule}{mark}")
    yield from _text(_of_the_program(entries, explanation))


def _of_the_program(entries: Sequence[Entry], explanation: Explanation) -> Iterator[str]:
    """Kernels that ran at keys of these entries in the trace, and that this torch does not have there."""
    places = {entry.key: registration(entry.registered_at) for entry in entries}
    traced = explanation.traced
    if traced is None or not traced.same_torch:
        return
    for row in traced.decomposition.keys.iter_rows(named=True):
        place = registration(row["registered_at"] or "")
        if row["key"] in places and place not in ("", places[row["key"]]):
            override = f", override {row['override']}" if row["override"] else ""
            ran = f"ran {row['hops']:,} x{override}"
            line = f"in {traced.file}: {row['key']}  {row['kernel'] or '?'}  {place}  {ran}"
            yield from _wrapped(line, "    ", "      ")


def _ran(group: Sequence[Entry], explanation: Explanation) -> tuple[int, str | None]:
    """How often entries of one registration ran in the trace, and the name of their kernel function."""
    name = explanation.kernels.get(group[0].registered_at)
    traced = explanation.traced
    if traced is None or not traced.same_torch:
        return 0, name
    keys = traced.decomposition.keys
    same = pl.col("registered_at").str.split("/").list.last() == registration(group[0].registered_at)
    found = keys.filter(pl.col("key").is_in([entry.key for entry in group]) & same.fill_null(True))
    kernels = found["kernel"].drop_nulls()
    return int(found["hops"].sum()), kernels[0] if len(kernels) else name


def _keys(group: Sequence[Entry], ending: str, every_key: bool) -> Iterator[str]:
    return _names([entry.key for entry in group], "  ", ending, every_key)


def _names(names: Sequence[str], indent: str, ending: str, every: bool) -> Iterator[str]:
    """Names on one line, those that do not fit counted; with `every` on as many lines as they take."""
    whole = ", ".join(names) + ending
    if every or len(indent + whole) <= _WIDTH:
        yield from _wrapped(whole, indent)
        return
    for shown in range(len(names) - 1, 0, -1):
        line = f"{indent}{', '.join(names[:shown])} and {len(names) - shown} more{ending}"
        if len(line) <= _WIDTH or shown == 1:
            yield line
            return


def _declaration_lines(explanation: Explanation) -> Iterator[Line]:
    function, delegate = explanation.function, explanation.delegate
    yield ("text", "")
    if function is None:
        why = "no entry" if explanation.declared else "torchgen is not installed beside torch"
        yield ("heading", f"native_functions.yaml: {why}")
        return
    yield ("heading", _place(function))
    if f"aten::{function.name}" != explanation.op:
        yield from _text(_wrapped(f"torchgen makes it from aten::{function.name} (autogen).", "  "))
    yield from _entry_lines(function)
    if delegate:
        yield ("heading", f"{_place(delegate)}, the structured kernel that it delegates to")
        yield from _entry_lines(delegate)


def _derivative_lines(explanation: Explanation, table: DispatchTable) -> Iterator[Line]:
    formula = explanation.derivative
    yield ("text", "")
    if formula:
        yield ("heading", _place(formula))
        if f"aten::{formula.name}" != explanation.op:
            yield from _text(_wrapped(f"Shared with aten::{formula.name}.", "  "))
        yield from _entry_lines(formula)
        if table.is_composite:
            used = [entry.key for entry in table.entries if entry.rule == "autograd kernel"]
            where = f"at {', '.join(used)} alone" if used else "at no key"
            text = f"It is used {where}; elsewhere autograd records the ops that the composite calls."
            yield from _text(_wrapped(text, "  "))
        return
    yield ("heading", "Derivative: no formula of its own")
    yield from _text(_wrapped(_why_no_formula(table), "  "))


def _why_no_formula(table: DispatchTable) -> str:
    entry = table.entry("AutogradCPU")
    if entry is None:
        return "Nothing is registered for autograd."
    where = registration(entry.registered_at)
    if entry.fallthrough or entry.rule == _FALLBACK:
        return f"Nothing is registered for autograd; its keys run the fallback ({where})."
    if table.is_composite:
        return "It is a composite: autograd records the ops that it calls."
    return f"Its kernel for autograd is registered at {where}."


def _traced_lines(traced: Traced, explanation: Explanation) -> Iterator[Line]:
    found = traced.decomposition
    yield ("text", "")
    yield ("heading", f"In {traced.file} (torch {traced.torch})")
    if explanation.torch and not traced.same_torch:
        yield from _text(
            _wrapped(
                f"This trace was recorded with torch {traced.torch}, and the table above is that of "
                f"torch {explanation.torch}, which is installed here.",
                "  ",
            )
        )
    if not found.calls and not len(found.keys):
        yield ("text", "  It did not run.")
        return
    hops = int(found.keys["hops"].sum())
    yield ("text", f"  {count(found.calls, 'op call')}, {count(hops, 'hop')}")
    yield from _text(_runs(found.keys))
    if found.calls_others:
        yield ("heading", "  The op calls that a call made")
        yield from _text(_sequences(found.called, found.calls))


def _runs(keys: pl.DataFrame) -> Iterator[str]:
    for row in keys.iter_rows(named=True):
        raised = f", {row['raised']:,} raised" if row["raised"] else ""
        rule = f" [{row['rule']}]" if row["rule"] else ""
        yield f"  {row['key'] or '?'}{rule}  {row['hops']:,} x {duration(row['median_ns'])}{raised}"
        parts = [part for part in (row["kernel"], registration(row["registered_at"] or "")) if part]
        line = "    " + "  ".join(parts)
        yield from [line] if len(line) <= _WIDTH else [f"    {part}" for part in parts]
        if row["override"]:
            yield from _wrapped(f"override {row['override']}", "    ", "      ")


def _sequences(called: pl.DataFrame, calls_in_all: int) -> Iterator[str]:
    width = len(f"{called.select(pl.col('calls').max()).item():,}")
    for ops, calls in called.head(_MOST_SEQUENCES).iter_rows():
        runs = [(op, len(list(run))) for op, run in groupby(ops)]
        text = ", ".join(op if length == 1 else f"{length} x {op}" for op, length in runs) or "nothing"
        yield from _wrapped(f"{calls:>{width},} of {calls_in_all:,}: {text}", "    ", "      ")
    if len(called) > _MOST_SEQUENCES:
        rest = called[_MOST_SEQUENCES:]
        yield f"    {count(len(rest), 'other sequence')} in {count(int(rest['calls'].sum()), 'call')}"


def _place(declaration: Declaration) -> str:
    return f"{declaration.file}:{declaration.line}"


def _entry_lines(declaration: Declaration) -> Iterator[Line]:
    """The entry as it is in the file, with long lines folded."""
    for line in declaration.text.splitlines():
        body = line.lstrip(" -")
        indent = " " * (len(line) - len(body))
        first = line[: len(indent)]
        yield from _text(_wrapped(body, f"  {first}", f"    {indent}"))


def _wrapped(text: str, indent: str, further: str | None = None) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=indent if further is None else further,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _text(lines: Iterable[str]) -> Iterator[Line]:
    return (("text", line) for line in lines)
