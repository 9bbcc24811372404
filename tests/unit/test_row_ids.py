"""Lines of a tree lead back to the rows of the trace's tables."""

from __future__ import annotations

import polars as pl
from cuda_frames import CudaBuilder
from frames import hop
from test_links import matmul

from tracer.analysis import links, trees
from tracer.analysis.row_ids import with_ids
from tracer.report.tree import id_texts

NAMES = {"hops": "op", "library_calls": "name", "api_calls": "name", "gpu_activities": "name"}


def lines_of(builder: CudaBuilder) -> pl.DataFrame:
    rows = links.combine(builder.cuda_trace()).rows
    _, nodes = trees.fold(trees.Forest.of(rows), ["process", "thread", "source"])
    return with_ids(nodes, rows)


def test_each_line_names_a_row_of_its_table() -> None:
    trace, lines = matmul().cuda_trace(), lines_of(matmul())
    assert lines["table"].to_list() == ["hops"] * 3 + ["library_calls", "api_calls", "gpu_activities"]
    for line in lines.iter_rows(named=True):
        table = getattr(trace, line["table"])
        row = table.row(by_predicate=pl.col("id") == line["id"], named=True)
        assert str(row[NAMES[line["table"]]]) == line["op"]
    assert id_texts(lines) == ["    0  ", "    1  ", "    2  ", "lib 0  ", "api 4  ", "gpu 0  "]


def test_a_library_call_that_only_stacks_name_has_no_id() -> None:
    builder = CudaBuilder().calls(hop("aten::_cudnn_rnn", "CUDA", self_ns=9000))
    builder.api("cudaLaunchKernel", "launch", 0, 9, hop=0, library="x.so", library_call="cudnnRNNForward")
    lines = lines_of(builder)
    assert lines.select("table", "id").rows() == [("hops", 0), (None, None), ("api_calls", 0)]
    assert id_texts(lines)[1].strip() == ""
