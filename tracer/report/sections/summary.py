"""The hottest paths in one look: the line, its inputs, and the kernel that ran in the end."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.analysis.device_kernels import table_name
from tracer.analysis.inputs_text import signature_texts
from tracer.report.cells import code, table, wrapped
from tracer.report.chain import chain_nodes
from tracer.report.hot_paths import InputCalls, Path, compiler_text, hottest_of
from tracer.report.page import Page, paragraphs, percent
from tracer.report.reading import Reading
from tracer.report.text import count, duration, package_relative, shorten_kernel
from tracer.trace.tables.schema import GPU_KINDS, HOP_KINDS

title = "In one look"
level = 2

_NAME, _INPUTS = 44, 40
_SAID = """\
The hottest paths, by cost in the steady steps. Times have all that the op calls. If the calls of a path have
several inputs, the row is about those inputs that take most."""
_ONCE = "First calls that loaded code or compiled are left out; Hottest paths has them, as **once**."
_KERNELS = "These are op calls. The section of compiled code has its kernels."


@dataclass(frozen=True)
class Row:
    """The calls of a path with the inputs that take most of its time. Times in ns.

    kernel      the device kernel, or on the CPU the kernel function that the time goes to
    total_ns    of these calls, also those in warm-up steps
    share       of the time in ops
    """

    source: str | None
    backward: bool
    more_lines: int
    op: str
    inputs: str
    library: str
    kernel: str
    calls: int
    total_ns: int
    share: float
    median_ns: int
    gpu_ns: int


@dataclass(frozen=True)
class Summary:
    rows: list[Row]
    has_cuda: bool
    compiler: tuple[int, int]
    has_compiled: bool
    has_once: bool


def wanted(reading: Reading) -> bool:
    return len(reading.chosen_paths) > 0 and reading.paths > 0


def data(reading: Reading) -> Summary:
    found = hottest_of(reading)
    inputs = found.costliest_inputs
    texts = signature_texts(found.signatures, [calls.signature for calls in inputs])
    has_compiled = len(reading.trace.compiled_kernels) > 0
    rows = [
        _row(path, calls, texts)
        for path, calls in zip(found.paths, inputs, strict=True)
        if path.unfinished < path.calls
    ]
    has_once = any(path.once_calls for path in found.paths)
    return Summary(rows, found.has_cuda, found.compiler, has_compiled, has_once)


def markdown(data: Summary, page: Page) -> str:
    if not data.rows:
        return ""
    last = "library function, kernel" if data.has_cuda else "kernel function"
    titles = ["total:", "share:", "calls:", "median:", *["GPU:"] * data.has_cuda]
    titles += ["line", "op and inputs", last]
    cells = [
        [
            duration(row.total_ns),
            percent(row.share),
            f"{row.calls:,}",
            duration(row.median_ns),
            *[duration(row.gpu_ns) if row.gpu_ns else ""] * data.has_cuda,
            _line(row, page),
            f"{code(row.op)}<br>{code(_cut(row.inputs))}" if row.inputs else code(row.op),
            "<br>".join(code(name) for name in (row.library, row.kernel) if name),
        ]
        for row in data.rows
    ]
    notes = [_ONCE] * data.has_once + [_KERNELS] * data.has_compiled
    return paragraphs(_SAID, table(titles, cells), *notes, wrapped(compiler_text(data.compiler)))


def _line(row: Row, page: Page) -> str:
    """The line, and below it its text, unless the op runs in its backward pass."""
    more = f" and {count(row.more_lines, 'more line')}" if row.more_lines else ""
    return page.line(row.source) + more + ("<br>(backward)" if row.backward else page.text(row.source))


def _cut(text: str) -> str:
    return text if len(text) <= _INPUTS else f"{text[: _INPUTS - 3]}..."


def _row(path: Path, calls: InputCalls, texts: dict[int, str]) -> Row:
    chain = chain_nodes(path.nodes)
    hops = [node for node in chain if node["kind"] in HOP_KINDS]
    libraries = [node["op"] for node in chain if node["kind"] == "library"]
    on_gpu = [node["op"] for node in chain if node["kind"] in GPU_KINDS]
    kernel = table_name(on_gpu[-1]) if on_gpu else package_relative(hops[-1]["kernel"] or "")
    return Row(
        source=calls.source,
        backward=calls.backward_node is not None,
        more_lines=calls.lines - 1,
        op=path.op,
        inputs="" if calls.signature is None else texts.get(calls.signature, ""),
        library=libraries[0] if libraries else "",
        kernel=shorten_kernel(kernel, _NAME),
        calls=calls.calls,
        total_ns=calls.total_ns,
        share=path.share * calls.total_ns / path.total_ns if path.total_ns else 0.0,
        median_ns=calls.median_ns,
        gpu_ns=calls.gpu_ns // calls.calls,
    )
