"""Definitions of a chunk whose records seem to be in each other."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from lane_moves import new_recording
from synthetic import chunk

from tracer.trace import load
from tracer.trace.bytes import format as fmt
from tracer.trace.bytes.definitions import Definitions


def test_records_that_seem_to_be_in_each_other_are_not_all_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each word is a head, whose record goes to the end of the chunk: a reader copied all of them."""
    tried = []
    add = Definitions._add
    monkeypatch.setattr(Definitions, "_add", lambda self, *of: (tried.append(1), add(self, *of))[1])
    words = 4000
    heads = [(8 * (words - n)) | 99 << 32 | fmt.DEFINITION_MAGIC << 48 for n in range(words)]
    writer = new_recording()
    plain = len(tried)
    data = writer.data() + chunk(2, 0, 100, 0xFFFFFFFF, 0, 0, struct.pack(f"<{words}Q", *heads))
    path = tmp_path / "x.trace"
    path.write_bytes(data[:32] + struct.pack("<Q", len(data)) + data[40:])
    trace = load(path)
    assert len(tried) - plain < 100
    assert not trace.certificate["complete"]
