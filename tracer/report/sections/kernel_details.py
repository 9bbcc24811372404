"""The kernels with the most to gain one by one: launch, resources, work and time."""

from __future__ import annotations

from math import ceil, prod

from tracer.analysis.device_kernels import table_name
from tracer.analysis.kernel_survey import KernelRow, remarks
from tracer.report.cells import code, item, prose
from tracer.report.kernel_tables import KernelTables, extent, kernel_name
from tracer.report.page import Page
from tracer.report.reading import with_cuda
from tracer.report.text import amount, count, duration, size

title = "Kernel by kernel"
level = 3
wanted = with_cuda
data = KernelTables.of

_LINES = 3


def markdown(data: KernelTables, page: Page) -> str:
    shown = data.ranked[: page.details]
    return "\n\n".join(_kernel(number, row, data, page) for number, row in enumerate(shown, 1))


def _kernel(number: int, row: KernelRow, data: KernelTables, page: Page) -> str:
    lines = [
        f"op: {_caller(row, data, page)}",
        f"launch: {_launch(row)}",
        f"resources: {_resources(row)}",
        f"work: {_work(row)}",
        f"time: median {duration(row.median_ns)}, least {duration(row.least_ns)}; "
        f"head-room {100 * (row.headroom or 0):.0f} %",
        *remarks(row, data.survey.limits.get(row.device)),
        *([f"family: {prose(row.family.name)}"] if row.family else []),
    ]
    if table_name(row.kernel) != row.kernel:
        lines.insert(0, f"kernel: {code(row.kernel)}")
    return "\n".join([f"#### {number}. {kernel_name(row)}", "", *map(item, lines)])


def _caller(row: KernelRow, data: KernelTables, page: Page) -> str:
    shapes = data.shapes.get(row.signature) if row.signature is not None else None
    words = [code(row.op or "no op") + (f" ({prose(shapes)})" if shapes else "")]
    if row.library_call:
        words.append(f"by {code(row.library_call.removesuffix('()'))}")
    if row.sources:
        lines = [code(page.sources.name(source)) for source in row.sources[:_LINES]]
        beyond = len(row.sources) - _LINES
        more = f" and {count(beyond, 'more line')}" if beyond > 0 else ""
        words.append(f"from {', '.join(lines)}{more}")
    return ", ".join(words)


def _launch(row: KernelRow) -> str:
    text = f"grid {extent(row.grid)}, block {extent(row.block)}"
    if row.cluster and prod(row.cluster) > 1:
        text += f", clusters of {extent(row.cluster)}"
    text += f": {count(row.threads, 'thread')}"
    output = row.work.output if row.work else None
    if not output:
        return text
    if row.is_one_of_several:  # it need not make all of the output
        text += f"; the output of the whole {row.of} is {extent(output)}"
    else:
        each = row.elements_per_thread or 0
        text += f" for an output of {extent(output)}, {each:.3g} elements a thread"
    if row.tile and len(output) >= 2:
        text += _tiles(row, output)
    return text


def _tiles(row: KernelRow, output: tuple[int, ...]) -> str:
    """How the tile in a GEMM kernel's name fits the output and the grid; cuBLAS may swap its sides."""
    rows, columns = row.tile or (1, 1)
    batch = prod(output[:-2])
    tiles = {
        batch * ceil(output[-2] / a) * ceil(output[-1] / b) for a, b in ((rows, columns), (columns, rows))
    }
    blocks = prod(row.grid)
    split = "; the sum over k is split, or tiles are padded" if blocks > max(tiles) else ""
    *others, most = sorted(tiles)
    fit = "".join(f"{n:,} or " for n in others) + count(most, "tile")
    return f"; its name says tiles of {rows}x{columns}: {fit} for {count(blocks, 'block')}{split}"


def _resources(row: KernelRow) -> str:
    words = [f"{row.registers} registers a thread", f"{size(row.shared_bytes)} shared memory a block"]
    if full := row.occupancy:
        words.append(
            f"{count(full.blocks_per_multiprocessor, 'block')} a multiprocessor, theoretical occupancy "
            f"{100 * full.share:.0f} % (limited by {full.limited_by})"
        )
        words.append(f"{full.waves:.3g} waves")
    return ", ".join(words)


def _work(row: KernelRow) -> str:
    if row.work is None or row.limit is None:
        return "unknown"
    words = [size(row.work.bytes or 0)] + [amount(row.work.flops, "FLOP")] * bool(row.work.flops)
    text = f"{', '.join(words)} {'an op call' if row.of == 'op' else 'a library call'}"
    if row.is_one_of_several and row.of_ns:
        text += f" of {duration(round(row.of_ns))} in {row.of_kernels:.3g} kernels"
    text += f"; limit {duration(round(row.limit.ns))} by {row.limit.by}"
    return text + (f" ({row.work.note})" if row.work.note else "")
