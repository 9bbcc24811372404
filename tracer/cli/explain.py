"""`tracer explain`: what an operator is, from its dispatch table to its derivative."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracer.cli.common import USAGE, analysing, fail, progress, writing
from tracer.cli.completion import traces
from tracer.cli.documents import AsJson, print_json
from tracer.cli.imports import import_modules
from tracer.cli.lines import print_line, terminal

if TYPE_CHECKING:
    from tracer.dispatch.operators import Operators
    from tracer.dispatch.report import Explanation, Traced
    from tracer.trace import Trace


def explain(
    operator: Annotated[
        str, typer.Argument(metavar="OPERATOR", help="aten::add.Tensor, or add for all its overloads.")
    ],
    file: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Also show what ran in this trace.",
            autocompletion=traces,
        ),
    ] = None,
    hop: Annotated[
        int | None,
        typer.Option(
            metavar="ID",
            help="Show why this hop ran its kernel (tracer tree --ids).",
        ),
    ] = None,
    every_key: Annotated[bool, typer.Option("--keys", help="Show one line per dispatch key.")] = False,
    modules: Annotated[
        list[str] | None,
        typer.Option("--import", metavar="MODULE", help="Import MODULE first: it registers the operator."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what an operator is in the torch that is installed here.

    You see its schema, tags, entry in native_functions.yaml and derivative formula,
    and for each dispatch key the kernel function, where it was registered, and which
    rule chose it. Without an overload you see all of them; "aten::" may be omitted.

    With --from you also see how often each key ran in a trace, and which ops a call
    called. With --hop you see why one hop ran its kernel: the keys of its arguments,
    those that the thread added and hid (recorded with --why), and the next key.

    \b
    Examples:
      tracer explain add.Tensor
      tracer explain linear --from run.trace
      tracer explain linear --from run.trace --hop 21
      tracer explain torchvision::nms --import torchvision
    """
    from tracer.base.visible import visible
    from tracer.dispatch.report import explain_lines

    if not operator.strip():
        fail("no operator given; give one, e.g. tracer explain aten::mm", USAGE)
    if hop is not None:
        if file is None:
            fail("--hop needs the trace that has the hop; give it with --from FILE", USAGE)
        from tracer.cli.why import explain_hop

        if modules:
            _operators(modules)
        explain_hop(operator, _existing(file), hop, as_json=as_json)
        return
    if file is None:
        explanations = _here(operator, modules or [])
    else:
        with analysing(_existing(file)) as trace:
            explanations = _with_trace(operator, modules or [], trace)
    if as_json:
        from tracer.dispatch.document import explanation_document

        print_json({"operators": [explanation_document(explanation) for explanation in explanations]})
        return
    known, explanations = len(explanations), _that_ran(explanations)
    console, _ = terminal()
    with writing():
        if known > 1:
            names = ", ".join(explanation.op for explanation in explanations)
            ran = f"{len(explanations)} of " if len(explanations) < known else ""
            print(f"{ran}{known} overloads{' ran' if ran else ''}: {visible(names)}\n")
        for number, explanation in enumerate(explanations):
            if number:
                print(f"\n{'-' * 80}\n")
            for role, text in explain_lines(explanation, every_key=every_key):
                print_line(console, [("plain" if role == "text" else "op", visible(text))])


def _existing(file: Path) -> Path:
    if file.is_dir() or not file.exists():
        fail(f"{file} is not a trace file; to record one: tracer record SCRIPT", USAGE)
    return file


def _here(operator: str, modules: list[str]) -> list[Explanation]:
    with progress("importing torch"):
        operators = _operators(modules)
        if operators is None:
            fail(
                f"torch is not installed in {sys.executable}; install it, or give a trace: --from FILE", USAGE
            )
        return _explanations(_chosen(operator, operators))


def _with_trace(operator: str, modules: list[str], trace: Trace) -> list[Explanation]:
    """What the torch here knows; without torch, or if it does not know the operator, what the trace has."""
    import polars as pl

    from tracer.dispatch.operators import Operators
    from tracer.dispatch.report import Explanation

    there = Operators(trace.hops["op"].unique().drop_nulls().cast(pl.String))
    here = _operators(modules)
    if here and (known := here.named(operator)):
        explanations = _explanations(known)
    elif known := there.named(operator):
        why = "The torch installed here does not know this operator; --import MODULE may register it."
        missing = why if here else "torch is not installed here, so tracer cannot show the dispatch table."
        explanations = [Explanation(op, missing=missing) for op in known]
    else:
        fail(_unknown(operator, Operators(there.names | (here.names if here else set()))), USAGE)
    return [_joined(explanation, trace) for explanation in explanations]


def _that_ran(explanations: list[Explanation]) -> list[Explanation]:
    """Of overloads in a trace those that ran; all if none did."""
    ran = [each for each in explanations if each.traced and len(each.traced.decomposition.keys)]
    return ran or explanations


def _joined(explanation: Explanation, trace: Trace) -> Explanation:
    from dataclasses import replace

    import polars as pl

    from tracer.analysis.decomposition import decompose
    from tracer.dispatch.report import Traced
    from tracer.report.handed_over import with_handed_over

    found = decompose(trace.hops, explanation.op)
    keys = with_handed_over(found.keys.with_columns(op=pl.lit(explanation.op)), trace.certificate).drop("op")
    recorded = str(trace.environment.get("torch", "unknown"))
    traced: Traced = Traced(
        Path(trace.path).name, recorded, recorded == explanation.torch, replace(found, keys=keys)
    )
    return replace(explanation, traced=traced)


def _operators(modules: list[str]) -> Operators | None:
    """Those of the installed torch, after `modules` were imported; None without torch."""
    from tracer.base.torch_build import installed_torch

    if installed_torch() is None:
        return None
    from tracer.dispatch.operators import registered_operators

    import_modules(["torch", *modules])
    return registered_operators()


def _chosen(operator: str, operators: Operators) -> list[str]:
    return operators.named(operator) or fail(_unknown(operator, operators), USAGE)


def _unknown(operator: str, operators: Operators) -> str:
    name = operator if "::" in operator else f"aten::{operator}"
    overloads = operators.named(name.split(".")[0]) if "." in name else []
    near = overloads[:8] or operators.near(operator)
    hint = f"near: {', '.join(near)}" if near else "if a module registers it, give it with --import MODULE"
    return f"no operator {operator}; {hint}"


def _explanations(ops: list[str]) -> list[Explanation]:
    """What this process and torchgen say of operators of the torch here."""
    import torch

    from tracer.dispatch.declarations import installed_declarations
    from tracer.dispatch.operator_kernels import GeneratedKernels
    from tracer.dispatch.report import Explanation
    from tracer.dispatch.table import folded, read_table

    generated = GeneratedKernels(Path(torch.__file__).parent / "lib")
    declarations = installed_declarations()
    explanations = []
    for op in ops:
        table = read_table(op)
        function = declarations.function(op) if declarations else None
        names = {
            group[0].registered_at: generated.name(op, group[0].registered_at, group[0].key)
            for group in folded(table.entries)
        }
        explanations.append(
            Explanation(
                op=op,
                torch=str(torch.__version__),
                table=table,
                kernels={place: name for place, name in names.items() if name},
                declared=declarations is not None,
                function=function,
                delegate=declarations.delegate(function) if declarations and function else None,
                derivative=declarations.derivative(op) if declarations else None,
            )
        )
    return explanations
