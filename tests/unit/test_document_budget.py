"""What the documents of a trace become in memory is bounded by the bytes of its file."""

from __future__ import annotations

import lzma
import struct
import tracemalloc
import zlib
from io import BytesIO
from pathlib import Path

import pytest
from synthetic import TraceWriter, definition, text

from tracer.base.known_names import KnownNames
from tracer.trace import load
from tracer.trace.bytes.documents import Budget, read_document
from tracer.trace.bytes.redact import redact
from tracer.trace.bytes.trace_errors import TraceError

TOO_LARGE = "its documents unpack to more than 8 MiB and 16 times their size, or to more than 524,288 values"
STORED = zlib.compress(b'"' + b"0" * (1 << 20) + b'"', 0)
"""1 MiB of a document, of which a packed trace keeps some bytes"""


def values(item: bytes, count: int) -> bytes:
    return zlib.compress(b"[" + item * count + b"0]", 9)


def trace_of(*documents: bytes, last: str = "environment") -> TraceWriter:
    writer = TraceWriter()
    writer.process(0)
    for number, packed in enumerate(documents):
        name = last if number == len(documents) - 1 else f"d{number}"
        body = text(name) + struct.pack("<I", len(packed)) + packed
        writer.process_definitions[0].append(definition(7, body))
    return writer


@pytest.mark.parametrize("item", [b"[],", b"{},", b'{"":0},', b"1.5,", b'"ab",', b"[[[[]]]],"])
def test_values_are_bounded_before_they_are_made(item: bytes) -> None:
    marks = sum(map(item.count, b"[{,:"))
    few, many = (values(item, (1 << 19) * share // (100 * marks)) for share in (98, 103))
    with pytest.raises(TraceError, match=TOO_LARGE):
        Budget().unpacked(many, "x.trace")
    tracemalloc.start()
    try:
        document, _ = read_document("some", Budget().unpacked(few, "x.trace"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(document) > 1000
    assert peak < 100 << 20


def test_a_document_pays_for_values_of_others(tmp_path: Path) -> None:
    many = values(b"[],", 1 << 18), STORED, values(b"[],", 1 << 18)
    assert load(trace_of(*many).write(tmp_path / "x.trace")) is not None
    with pytest.raises(TraceError, match=TOO_LARGE):
        load(trace_of(many[0], many[2]).write(tmp_path / "y.trace"))


def test_in_a_packed_trace_the_bytes_of_its_file_count(tmp_path: Path) -> None:
    data = trace_of(*[STORED] * 8, values(b"[],", 3 << 20)).data()
    (tmp_path / "x.trace").write_bytes(data)
    assert load(tmp_path / "x.trace") is not None
    (tmp_path / "x.trace.xz").write_bytes(lzma.compress(data, preset=0))
    with pytest.raises(TraceError, match="unpack it with xz -d"):
        load(tmp_path / "x.trace.xz")


@pytest.mark.parametrize(
    "packed", [values(b"[],", 1 << 19), zlib.compress(b'"' + b"0" * (100 << 20) + b'"', 9)]
)
@pytest.mark.parametrize("name", ["environment", "rank"])
def test_redaction_has_the_same_budget(tmp_path: Path, packed: bytes, name: str) -> None:
    path = trace_of(packed, last=name).write(tmp_path / "x.trace")
    with pytest.raises(TraceError, match=TOO_LARGE):
        redact(path, BytesIO(), KnownNames())


def test_texts_are_what_they_were() -> None:
    content = '["\U0001f600", "plain", "\\ud800", [], ["a", 1e999, [NaN], {"b": 1e999}]]'.encode()
    assert read_document("some", content) == (["\U0001f600", "plain", "\\ud800", [], ["a", [], {}]], True)
