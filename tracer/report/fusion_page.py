"""What fusing saved, as sections of the page of `tracer diff`."""

from __future__ import annotations

from tracer.analysis.difference.fusion import FusedKernel, Fusion
from tracer.report import fusion_text as text
from tracer.report.cells import code, prose, table, wrapped
from tracer.report.difference_text import first, shown_of
from tracer.report.page import paragraphs


def fusion_parts(found: Fusion, limit: int) -> list[str]:
    """Paragraphs of markdown, each kernel and line in tables of at most `limit` rows (0: all)."""
    head, *sentences = text.fusion_lines(found)
    kernels, lines = first(found.kernels, limit), first(found.lines, limit)
    parts = [
        wrapped(prose(head)),
        "\n".join(wrapped(f"- {prose(sentence)}", "  ") for sentence in sentences),
        *(_kernel(kernel) for kernel in kernels),
        *(wrapped(note) for note in text.notes(list(kernels))),
        shown_of(len(kernels), len(found.kernels), "kernel"),
    ]
    if lines:
        cells = [text.line_cells(line) for line in lines]
        cells = [[code(row[0]), *row[1:-1], code(row[-1])] for row in cells]
        parts += ["### Eager against compiled by line", wrapped(text.LINES_SAID)]
        parts += [table(text.LINE_TITLES, cells), shown_of(len(lines), len(found.lines), "line")]
    modules = first(found.modules, limit)
    if modules:
        cells = [text.module_cells(module) for module in modules]
        parts += ["### Eager against compiled by module", wrapped(text.MODULES_SAID)]
        parts += [table(text.MODULE_TITLES, [[code(row[0]), *row[1:]] for row in cells])]
        parts += [shown_of(len(modules), len(found.modules), "module")]
    return parts


def _kernel(kernel: FusedKernel) -> str:
    cells = [text.op_cells(op) for op in kernel.ops]
    rows = [[code(line), code(op), calls, code(words)] for line, op, calls, words in cells]
    return paragraphs(
        f"### {code(text.kernel_name(kernel))}",
        wrapped(prose(text.kernel_costs(kernel))),
        table(text.OP_TITLES, rows) if rows else "",
    )
