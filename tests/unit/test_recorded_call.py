"""What a trace says of the arguments of an op call."""

from __future__ import annotations

import struct
from pathlib import Path

import polars as pl
import pytest
from frames import TraceBuilder, hop
from synthetic import TraceWriter

from tracer.analysis.recorded_call import NoSuchHopError, recorded_call
from tracer.trace import load
from tracer.trace.bytes import format as fmt
from tracer.trace.tables import schema

SOURCE = "/home/user/project/train.py:7"


def trace_of(*scalars: tuple[int, int, str]):
    builder = TraceBuilder()
    shape = builder.signature(([2, 3], "torch.float32"), ([3], "torch.float32"))
    inner = hop("aten::add.Tensor", "CPU", hop("aten::empty", "CPU"), inputs=shape)
    trace = builder.calls(hop("aten::add.Tensor", "AutogradCPU", inner, inputs=shape, source=SOURCE)).trace()
    trace.scalars = pl.DataFrame(list(scalars), schema.SCALARS, orient="row")
    trace.signatures = trace.signatures.with_columns(keys=pl.lit("AutogradCPU, CPU"))
    return trace


def test_a_redispatch_belongs_to_its_call() -> None:
    call = recorded_call(trace_of((0, 2, "0.5")), 1)
    assert (call.hop, call.call, call.op, call.key) == (1, 0, "aten::add.Tensor", "AutogradCPU")
    assert (call.line, call.torch) == ("train.py:7", "2.13.0+cpu")
    assert call.tensors is not None
    assert [tensor.shape for tensor in call.tensors[0] + call.tensors[1]] == [(2, 3), (3,)]
    assert call.tensors[0][0].keys == ("AutogradCPU", "CPU")
    assert call.scalars == {2: 0.5}


def test_what_was_not_recorded_is_none() -> None:
    assert recorded_call(trace_of(), 0).scalars is None
    collective = (7, 1, '{"process_group":"0"}'), (7, 4, "false")  # which are recorded without --values
    assert recorded_call(trace_of(*collective), 0).scalars is None
    trace = trace_of()
    trace.environment["options"] = {"shapes": False}
    assert recorded_call(trace, 2).tensors is None
    trace.environment["options"] = {"shapes": True}
    assert recorded_call(trace, 2).tensors == {}, "a call without tensors"


def test_a_value_that_is_not_json_is_unknown() -> None:
    assert recorded_call(trace_of((0, 2, "{")), 0).scalars == {2: {"unknown": "value that cannot be read"}}


@pytest.mark.parametrize("number", [-1, 3])
def test_no_such_hop(number: int) -> None:
    with pytest.raises(NoSuchHopError, match=rf"no hop {number}; the trace has hops 0 to 2"):
        recorded_call(trace_of(), number)


def test_scalars_in_the_file(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.process()
    writer.hop(0, "aten::add.Tensor")
    lane = writer.lane()
    tensor = struct.pack("<HBbBbBBQ", 0, 1, 6, 0, -1, 0, fmt.HAS_STRIDES, 0) + struct.pack("<2q", 3, 1)
    scalars = b"".join(
        struct.pack("<H", position) + fmt.pack_string(text) for position, text in ((1, "[1,2]"), (2, "true"))
    )
    lane.define_signature(1, tensor, scalars=struct.pack("<I", 2) + scalars)
    lane.define_signature(2, tensor)
    for signature in (1, 2):
        lane.enter(0, signature=signature)
        lane.exit()
    trace = load(writer.write(tmp_path / "run.trace"))
    assert trace.hops["inputs"].to_list() == [0, 1]
    assert trace.signatures["id"].to_list() == [0, 1]
    assert list(trace.scalars.iter_rows()) == [(0, 1, "[1,2]"), (0, 2, "true")]
