"""The hottest paths in one look: the line, its inputs, and the kernel that ran in the end."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.analysis.device_kernels import table_name
from tracer.report.cells import code, table, wrapped
from tracer.report.chain import chain_nodes
from tracer.report.hot_paths import Path, compiler_text, hottest_of
from tracer.report.page import Page, paragraphs
from tracer.report.reading import Reading
from tracer.report.text import count, duration, package_relative, shorten_kernel, signature_texts
from tracer.trace.tables.schema import GPU_KINDS, HOP_KINDS

title = "In one look"
level = 2

_NAME, _INPUTS = 44, 40
_KERNELS = "These are op calls. The section of compiled code has its kernels."


@dataclass(frozen=True)
class Row:
    """`kernel`: the device kernel, or on the CPU the kernel function that the time goes to."""

    source: str | None
    backward: bool
    more_lines: int
    op: str
    inputs: str
    library: str
    kernel: str
    median_ns: int
    gpu_ns: int


@dataclass(frozen=True)
class Summary:
    rows: list[Row]
    has_cuda: bool
    compiler: tuple[int, int]
    has_compiled: bool


def wanted(reading: Reading) -> bool:
    return len(reading.chosen_paths) > 0 and reading.paths > 0


def data(reading: Reading) -> Summary:
    found = hottest_of(reading)
    texts = signature_texts(found.signatures, [path.inputs[0].signature for path in found.paths])
    has_compiled = len(reading.trace.compiled_kernels) > 0
    rows = [_row(path, texts) for path in found.paths if path.unfinished < path.calls]
    return Summary(rows, found.has_cuda, found.compiler, has_compiled)


def markdown(data: Summary, page: Page) -> str:
    if not data.rows:
        return ""
    last = "library function, kernel" if data.has_cuda else "kernel function"
    titles = ["line", "inputs", last, "median:", *["GPU:"] * data.has_cuda]
    cells = [
        [
            _line(row, page),
            code(_cut(row.inputs)),
            "<br>".join(code(name) for name in (row.library, row.kernel) if name),
            duration(row.median_ns),
            *[duration(row.gpu_ns) if row.gpu_ns else ""] * data.has_cuda,
        ]
        for row in data.rows
    ]
    kernels = "" if not data.has_compiled else _KERNELS
    return paragraphs(table(titles, cells), kernels, wrapped(compiler_text(data.compiler)))


def _line(row: Row, page: Page) -> str:
    """The line, and below it its text, or the op if that is unknown or runs in the backward pass."""
    more = f" and {count(row.more_lines, 'more line')}" if row.more_lines else ""
    op = f"<br>{code(row.op)}" + " (backward)" * row.backward
    return page.line(row.source) + more + (op if row.backward else page.text(row.source) or op)


def _cut(text: str) -> str:
    return text if len(text) <= _INPUTS else f"{text[: _INPUTS - 3]}..."


def _row(path: Path, texts: dict[int, str]) -> Row:
    chain = chain_nodes(path.nodes)
    hops = [node for node in chain if node["kind"] in HOP_KINDS]
    libraries = [node["op"] for node in chain if node["kind"] == "library"]
    on_gpu = [node["op"] for node in chain if node["kind"] in GPU_KINDS]
    first, first_inputs = path.sources[0], path.inputs[0].signature
    kernel = table_name(on_gpu[-1]) if on_gpu else package_relative(hops[-1]["kernel"] or "")
    return Row(
        source=first.source,
        backward=first.backward_node is not None,
        more_lines=len({calls.source for calls in path.sources}) - 1,
        op=path.op,
        inputs="" if first_inputs is None else texts.get(first_inputs, ""),
        library=libraries[0] if libraries else "",
        kernel=shorten_kernel(kernel, _NAME),
        median_ns=path.median_ns,
        gpu_ns=path.gpu_ns // path.calls,
    )
