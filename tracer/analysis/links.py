"""Chains from the op to the GPU: hops, library calls, API calls and GPU activities in one forest.

`combine` puts the tables of a trace together in one frame that has the columns of hops, so that
`trees.Forest`, `trees.fold` and `paths` work on all of it. Columns beyond those of hops:

    kind      also compiled | compiled kernel | library | api | kernel | memcpy | memset; `op` has the name of
              what was called
    hop, compiled_call, compiled_kernel, library_call, api_call, activity    the row's id in its own table,
              else null
    gpu_ns    time of the GPU activities in it and below it (of an activity: its own)
    queries, others    API calls directly in it that have no row: queries, and all others

`inputs` of a row that is no hop is the id of a text about it (Links.details), beyond those of the
signatures. `self_ns` is host time that no row below accounts for; of a GPU activity its duration. It is
null of a library call that only the stacks of its API calls name: its row lasts from the first of them to
the last, and what the library did before and after counts as the own time of the hop around it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracer.analysis.compiled import has_compiled, texts_of_compiled, with_compiled
from tracer.analysis.device_kernels import short_device_kernel
from tracer.analysis.trees import depths
from tracer.trace.bytes.arrays import unlooped
from tracer.trace.tables.schema import GPU_KINDS, HOP_KINDS
from tracer.trace.tables.series import numbers

if TYPE_CHECKING:
    from tracer.trace import Trace

SHOWN_ROLES = ("launch", "copy", "fill", "synchronisation", "memory allocation")
QUERY_ROLES = ("query", "error", "occupancy and attributes")
UNKNOWN_FUNCTION, UNKNOWN_KERNEL = "an unknown function", "a kernel without a name"

_INHERITED = ("source", "called_from", "backward_node", "forward_hop", "range", "step", "phase", "module")
_STRINGS = ("op", "key", "kernel", "kind", "registered_at", "rule", "source", "called_from", "backward_node")
_POINTERS = r"(?:^|, )[\w.*]+=(?:\(?nil\)?|0x[0-9a-fA-F]+)"
_SIZE = r"(?:^|, )(?:count|sizeBytes|ByteCount|size|bytesize|N)=(\d+)"
_QUIET = {"handle", "lightHandle", "alpha", "beta", "algo", "stream", "flags", "projection", "math"}
_BARE = {"transa", "transb", "trans", "mode", "type", "training", "datatype", "op"}
_DEFAULTS = {"batchCount=1", "epilogue=DEFAULT", "direction=UNIDIRECTIONAL", "algorithm=STANDARD"}
_ENUM_PREFIX = re.compile(r"^(?:CUBLAS_OP|CUBLAS_COMPUTE|CUDA_R|CUDA_C|R|CUDNN_DATA|CUDNN|CUBLAS)_|^nccl")


@dataclass(frozen=True)
class Links:
    """`rows` in the order of entry, each after the one that encloses it; `details` by id of text."""

    rows: pl.DataFrame
    details: dict[int, str]

    @property
    def has_gpu(self) -> bool:
        return "gpu_ns" in self.rows.columns


def combine(trace: Trace, *, every_call: bool = False) -> Links:
    """The combined frame of a trace; the hops as they are where it has no CUDA.

    API calls that only ask (cudaGetDevice) and those that steer streams, events and the like are
    counted in `queries` and `others`, and have no row unless `every_call`, or they made the GPU do
    something. Calls within an API call have none either (driver calls in runtime calls). GPU
    activities that belong to no API call are left out.

    id   kind        op                          parent  queries
    138  call        aten::_cudnn_rnn_flatten..  null    0
    139  redispatch  aten::_cudnn_rnn_flatten..  138     44       calls such as cudaGetDevice
    140  library     cudnnCreate                 139     0
    141  api         cudaFree                    140     0
    143  api         cudaMemsetAsync             140     0
    144  memset      memset                      143     0
    """
    calls, libraries, activities = trace.api_calls, trace.library_calls, trace.gpu_activities
    if calls.is_empty() and libraries.is_empty() and not has_compiled(trace):
        return Links(trace.hops, {})
    nodes = _Nodes(trace.hops, libraries, calls)
    shown = np.ones(len(calls), bool) if every_call else _shown(calls, activities, nodes.outer)
    rows = with_compiled(nodes.frame(shown, activities), trace)
    rows, left_out = nodes.count_left_out(rows, shown)
    rows = rows.with_columns(left_out)
    order = _preorder(rows)
    rows = _placed(rows, order)
    details, numbers = _details(rows, trace)
    last = trace.signatures.select(pl.col("id").max()).item()
    first = 0 if last is None else int(last) + 1
    texts = {first + number: text for number, text in enumerate(details)}
    own = pl.Series(numbers).cast(pl.Int64)
    rows = rows.with_columns(
        inputs=pl.when(own >= 0).then(own + first).otherwise(pl.col("inputs").cast(pl.Int64))
    )
    return Links(
        _with_times(rows).with_columns(pl.col(name).cast(pl.Categorical) for name in _STRINGS), texts
    )


class _Nodes:
    """Rows of all tables in one numbering: hops, library calls, API calls, activities.

    `parent` numbers are rows in that numbering, -1 for an outermost row. Library calls that only a
    stack names get a row too, after the ones that were recorded.
    """

    def __init__(self, hops: pl.DataFrame, libraries: pl.DataFrame, calls: pl.DataFrame) -> None:
        self.hops, self.libraries, self.calls = hops, libraries, calls
        self.first_library = len(hops)
        self.first_call = self.first_library + len(libraries)
        self.first_activity = self.first_call + len(calls)
        self.outer = numbers(calls["parent"])
        self.call_parent = self._call_parents()

    def _call_parents(self) -> np.ndarray:
        hop = numbers(self.calls["hop"])
        library = numbers(self.calls["library_call_id"])
        library_hop = np.append(numbers(self.libraries["hop"]), -1)
        in_library = (library >= 0) & (library_hop[library] == hop)
        parent = np.where(in_library, library + self.first_library, hop)
        return np.where(self.outer >= 0, self.outer + self.first_call, parent)

    def frame(self, shown: np.ndarray, activities: pl.DataFrame) -> pl.DataFrame:
        """The shown rows: number, parent (-1), kind, op and what of hops they have."""
        library_parent = numbers(self.libraries["parent"])
        library_hop = numbers(self.libraries["hop"])
        library_parent = np.where(library_parent >= 0, library_parent + self.first_library, library_hop)
        hops = self.hops.with_columns(
            pl.col(name).cast(pl.String) for name in _STRINGS if name in self.hops.columns
        ).with_columns(
            number=pl.int_range(pl.len(), dtype=pl.Int64),
            parent=pl.col("parent").cast(pl.Int64).fill_null(-1),
            hop=pl.col("id").cast(pl.Int64),
        )
        libraries = self.libraries.select(
            *_timed("process", "thread", "start_ns", "end_ns", "open"),
            source=pl.col("source").cast(pl.String),
            op=pl.col("name").cast(pl.String).fill_null(UNKNOWN_FUNCTION),
            kind=pl.lit("library"),
            library_call=pl.col("id").cast(pl.Int64),
            number=pl.int_range(pl.len(), dtype=pl.Int64) + self.first_library,
            parent=pl.Series(library_parent, dtype=pl.Int64),
            under=pl.col("hop").cast(pl.Int64),
        )
        calls = self.calls.select(
            *_timed("process", "thread", "start_ns", "end_ns", "open"),
            source=pl.col("source").cast(pl.String),
            op=pl.col("name").cast(pl.String).fill_null(UNKNOWN_FUNCTION),
            kind=pl.lit("api"),
            api_call=pl.col("id").cast(pl.Int64),
            number=pl.int_range(pl.len(), dtype=pl.Int64) + self.first_call,
            parent=pl.Series(self.call_parent, dtype=pl.Int64),
            under=pl.col("hop").cast(pl.Int64),
            named=pl.when(
                pl.col("library_call_id").is_null() & pl.Series(self.outer < 0, dtype=pl.Boolean)
            ).then(pl.col("library_call").cast(pl.String)),
            vendor=pl.col("library").cast(pl.String),
        ).filter(pl.Series(shown, dtype=pl.Boolean))
        known = activities.filter(pl.col("api_call").is_not_null())
        known = known.filter(pl.Series(shown[known["api_call"].cast(pl.Int64).to_numpy()], dtype=pl.Boolean))
        issuing = known["api_call"].cast(pl.Int64).to_numpy()
        called = self.calls["end_ns"].gather(issuing)  # for what has no times: it came after the call
        gpu = known.select(
            *_timed("process"),
            start_ns=pl.coalesce("start_ns", called),
            end_ns=pl.coalesce("end_ns", "start_ns", called),
            thread=self.calls["thread"].cast(pl.Int64).gather(issuing),
            op=short_names(known["name"]).fill_null(UNKNOWN_KERNEL),
            kind=pl.col("kind").cast(pl.String),
            activity=pl.col("id").cast(pl.Int64),
            number=pl.int_range(pl.len(), dtype=pl.Int64) + self.first_activity,
            parent=pl.Series(issuing + self.first_call, dtype=pl.Int64),
            under=self.calls["hop"].cast(pl.Int64).gather(issuing),
            source=self.calls["source"].cast(pl.String).gather(issuing),
        )
        rows = pl.concat([hops, libraries, calls, gpu], how="diagonal_relaxed")
        return self._with_named_libraries(rows)

    def _with_named_libraries(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Puts API calls that follow each other in one library call of their stacks into a row of it."""
        host = rows.filter(pl.col("kind").is_in([*HOP_KINDS, "library", "api"])).sort(
            "process", "thread", "parent", "start_ns", "number"
        )
        run = host.select("process", "thread", "parent", "vendor", "named").with_columns(
            single=pl.when(pl.col("named").is_null()).then(pl.int_range(pl.len()))
        )
        host = host.with_columns(run=run.select(pl.struct(pl.all()).rle_id()).to_series())
        members = host.filter(pl.col("named").is_not_null())
        if members.is_empty():
            return rows.drop("named", "vendor")
        first = int(rows["number"].max()) + 1  # type: ignore[arg-type]
        made = (
            members.group_by("run", maintain_order=True)
            .agg(
                pl.col("process", "thread", "parent", "start_ns", "under", "source").first(),
                pl.col("end_ns").max(),
                pl.col("open").any(),
                op=pl.col("named").first(),
            )
            .with_columns(kind=pl.lit("library"), number=pl.int_range(pl.len(), dtype=pl.Int64) + first)
        )
        above = members.select("number", "run").join(made.select("run", above="number"), on="run")
        rows = (
            rows.join(above.select("number", "above"), on="number", how="left", maintain_order="left")
            .with_columns(parent=pl.coalesce("above", "parent"))
            .drop("above", "named", "vendor")
        )
        return pl.concat([rows, made.drop("run")], how="diagonal_relaxed")

    def count_left_out(self, rows: pl.DataFrame, shown: np.ndarray) -> tuple[pl.DataFrame, list[pl.Series]]:
        hidden = np.flatnonzero(~shown)
        parent = self.call_parent[hidden]
        nested = self.outer[hidden] >= 0
        asks = _have_role(self.calls, QUERY_ROLES)[hidden]
        most = int(rows["number"].max()) + 1  # type: ignore[arg-type]
        number = rows["number"].to_numpy()
        counted = (parent >= 0) & ~nested
        return rows, [
            pl.Series(name, np.bincount(parent[counted & which], minlength=most)[number])
            for name, which in (("queries", asks), ("others", ~asks))
        ]


def short_names(names: pl.Series) -> pl.Series:
    """The short name of each device kernel; `memcpy HtoD` and the like stay as they are."""
    names = names.cast(pl.String)
    distinct = names.drop_nulls().unique()
    return names.replace_strict(
        distinct, [short_device_kernel(name) for name in distinct], default=None, return_dtype=pl.String
    )


def _timed(*names: str) -> list[pl.Expr]:
    return [pl.col(name) if name == "open" else pl.col(name).cast(pl.Int64) for name in names]


def _have_role(calls: pl.DataFrame, roles: tuple[str, ...]) -> np.ndarray:
    """Whether each call has one of these. A call of a damaged trace may have none."""
    return calls["role"].cast(pl.String).is_in(roles).fill_null(False).to_numpy()


def _shown(calls: pl.DataFrame, activities: pl.DataFrame, outer: np.ndarray) -> np.ndarray:
    shown = _have_role(calls, SHOWN_ROLES) & (outer < 0)
    issuing = np.unique(activities["api_call"].drop_nulls().cast(pl.Int64).to_numpy())
    while len(issuing):  # and the calls around these
        shown[issuing] = True
        issuing = outer[issuing]
        issuing = issuing[issuing >= 0]
    return shown


def _preorder(rows: pl.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """(the rows in order of entry, the parent of each row as a place in that order)."""
    count = len(rows)
    place_of = np.full(int(rows["number"].max() or 0) + 1, -1)  # type: ignore[arg-type]
    place_of[rows["number"].to_numpy()] = np.arange(count)
    parent = rows["parent"].to_numpy()
    parent = unlooped(np.where(parent >= 0, place_of[parent], -1))
    columns = [rows[name].to_numpy() for name in ("number", "start_ns", "thread", "process")]
    siblings = np.lexsort((*columns, parent))  # by parent, process, thread, start
    depth = depths(parent)
    by_depth = np.argsort(depth, kind="stable")
    bounds = np.cumsum(np.bincount(depth)).tolist()
    levels = [by_depth[start:end] for start, end in zip([0, *bounds[:-1]], bounds, strict=True)]
    size = np.ones(count, np.int64)
    for level in reversed(levels[1:]):
        np.add.at(size, parent[level], size[level])
    before = np.cumsum(size[siblings]) - size[siblings]
    first = np.flatnonzero(np.diff(parent[siblings], prepend=-2))
    before -= np.repeat(before[first], np.diff(first, append=count))
    offset = np.empty(count, np.int64)
    offset[siblings] = before
    position = offset
    for level in levels[1:]:
        position[level] += position[parent[level]] + 1
    order = np.argsort(position, kind="stable")
    return order, np.where(parent >= 0, position[parent], -1)[order]


def _placed(rows: pl.DataFrame, order: tuple[np.ndarray, np.ndarray]) -> pl.DataFrame:
    """The rows in their order with new ids; what the hop says of its source goes to what is in it."""
    permutation, parent = order
    rows = rows[permutation]
    inherited = [name for name in _INHERITED if name in rows.columns]
    hop_row = rows.filter(pl.col("hop").is_not_null()).select(under="hop", **{f"{n}_": n for n in inherited})
    rows = rows.join(hop_row, on="under", how="left", maintain_order="left")
    return rows.with_columns(
        *(pl.coalesce(f"{name}_", name).alias(name) for name in inherited),
        id=pl.int_range(pl.len(), dtype=pl.Int64),
        parent=pl.when(pl.Series(parent) >= 0).then(pl.Series(parent)),
        raised=pl.col("raised").fill_null(False),
        open=pl.col("open").fill_null(False),
    ).drop(f"{name}_" for name in inherited)


def _with_times(rows: pl.DataFrame) -> pl.DataFrame:
    duration = (rows["end_ns"] - rows["start_ns"]).to_numpy()
    on_gpu = rows["kind"].is_in(GPU_KINDS).to_numpy()
    parent = rows["parent"].fill_null(-1).to_numpy()
    gpu = np.where(on_gpu, duration, 0)
    nested = np.zeros(len(rows), np.int64)
    host = np.flatnonzero((parent >= 0) & ~on_gpu)
    np.add.at(nested, parent[host], duration[host])
    depth = depths(parent)
    by_depth = np.argsort(-depth, kind="stable")
    ends = np.cumsum(np.bincount(depth.max(initial=0) - depth))
    for start, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
        level = by_depth[start:end]
        level = level[parent[level] >= 0]
        np.add.at(gpu, parent[level], gpu[level])
    own = pl.Series(np.where(on_gpu, duration, np.maximum(duration - nested, 0)))
    recorded = (pl.col("kind") != "library") | pl.col("library_call").is_not_null()
    return rows.with_columns(
        self_ns=pl.when(recorded).then(own),
        gpu_ns=pl.Series(gpu),
    )


def _details(rows: pl.DataFrame, trace: Trace) -> tuple[list[str], np.ndarray]:
    """The distinct texts, and of each row the number of its text (-1: none)."""
    libraries, calls, activities = trace.library_calls, trace.api_calls, trace.gpu_activities
    text = pl.Series([None], dtype=pl.String).new_from_index(0, len(rows))
    compiled_texts = texts_of_compiled(trace)
    for column, texts in (
        ("library_call", library_texts(libraries["arguments"])),
        ("api_call", _call_texts(calls, activities)),
        ("activity", _activity_texts(activities)),
        ("compiled_call", compiled_texts[0]),
        ("compiled_kernel", compiled_texts[1]),
    ):
        if column in rows.columns and len(texts):
            text = pl.select(pl.coalesce(texts.gather(rows[column]), text)).to_series()
    text = pl.select(pl.when(text != "").then(text)).to_series()
    distinct = text.drop_nulls().unique(maintain_order=True)
    numbers = pl.DataFrame({"text": text}).join(
        pl.DataFrame({"text": distinct, "number": np.arange(len(distinct))}),
        on="text",
        how="left",
        maintain_order="left",
    )["number"]
    return distinct.to_list(), numbers.fill_null(-1).to_numpy()


def library_texts(arguments: pl.Series) -> pl.Series:
    """`N, N, m=64, n=64, k=64` of each text of a library call's arguments."""
    plain = arguments.cast(pl.String).fill_null("").str.replace_all(_POINTERS, "").str.strip_prefix(", ")
    distinct = plain.unique()
    return plain.replace_strict(distinct, [_library_text(text) for text in distinct], return_dtype=pl.String)


def _library_text(arguments: str) -> str:
    words = []
    for field in filter(None, arguments.split(", ")):
        name, _, value = field.partition("=")
        value = _ENUM_PREFIX.sub("", value)
        if name in _QUIET or field in _DEFAULTS or re.fullmatch(r"ld\w|stride\w|\w+Size", name):
            continue
        words.append(value if name in _BARE else f"{name}={value}")
    return ", ".join(words)


def _call_texts(calls: pl.DataFrame, activities: pl.DataFrame) -> pl.Series:
    """`grid 2, block 64` of launches, bytes and direction of copies, sizes of allocations."""
    launched = activities.filter(
        pl.col("api_call").is_not_null() & (pl.col("kind").cast(pl.String) == "kernel")
    )
    launched = launched.unique("api_call", keep="first", maintain_order=True).select(
        id=pl.col("api_call").cast(pl.Int64),
        launch=pl.format("grid {}, block {}", extent("grid"), extent("block")),
    )
    # A runtime call has the launch of the driver call in it.
    outer = calls.select(id=pl.col("id").cast(pl.Int64), outer=pl.col("parent").cast(pl.Int64)).drop_nulls()
    above = launched.join(outer, on="id").select(id="outer", launch="launch")
    launched = pl.concat([launched, above]).unique("id", keep="first", maintain_order=True)
    arguments = pl.col("arguments").cast(pl.String).fill_null("")
    size = arguments.str.extract(_SIZE).cast(pl.Int64, strict=False)
    direction = arguments.str.extract(r"kind=(?:cudaMemcpy)?(\w+)")
    error = pl.when(pl.col("result") != 0).then(pl.format("error {}", "result"))
    role = pl.col("role").cast(pl.String)
    captured = pl.when(pl.col("captured")).then(pl.lit("captured"))
    sized = pl.when(role.is_in(["copy", "fill", "memory allocation"])).then(
        pl.concat_str([pl.format("{} B", size), direction], separator=", ", ignore_nulls=True)
    )
    launch = pl.when(role == "launch").then("launch")
    return (
        calls.with_columns(id=pl.col("id").cast(pl.Int64))
        .join(launched, on="id", how="left", maintain_order="left")
        .select(pl.concat_str([launch, sized, captured, error], separator=", ", ignore_nulls=True))
        .to_series()
    )


def extent(column: str) -> pl.Expr:
    """`2` or `2x3` of a list of three extents."""
    lengths = pl.col(column).cast(pl.List(pl.String))
    last = (
        pl.when(pl.col(column).list.get(2, null_on_oob=True).fill_null(1) > 1)
        .then(3)
        .when(pl.col(column).list.get(1, null_on_oob=True).fill_null(1) > 1)
        .then(2)
        .otherwise(1)
    )
    return lengths.list.head(last).list.join("x")


def _activity_texts(activities: pl.DataFrame) -> pl.Series:
    return activities.select(
        pl.when(pl.col("bytes").is_not_null() & (pl.col("kind").cast(pl.String) != "kernel")).then(
            pl.format("{} B", "bytes")
        )
    ).to_series()
