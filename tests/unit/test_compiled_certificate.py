"""What the certificate says of compiled code that ran."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import CERTIFICATE, TraceWriter

from tracer.trace import load


@pytest.mark.parametrize(
    ("counts", "killed", "calls", "text"),
    [
        ([0, 0], 0, 0, ""),
        ([1, 0], 0, 1, "1 call of code compiled by torch.compile"),
        ([1000, 2], 0, 1002, "1,002 calls of code compiled by torch.compile"),
        ([5], 2, 7, "at least 7 calls of code compiled by torch.compile"),
    ],
)
def test_calls_of_all_processes_are_added(
    tmp_path: Path, counts: list[int], killed: int, calls: int, text: str
) -> None:
    writer = TraceWriter()
    for process, count in enumerate(counts):
        writer.process(process, certificate={**CERTIFICATE, "compiled_calls": count})
        if count:
            writer.json(process, "compiled", {"called": True})
    for process in range(len(counts), len(counts) + killed):
        writer.process(process, how=1, parent_pid=100, certificate=None)
        writer.json(process, "compiled", {"called": True})
    certificate = load(writer.write(tmp_path / "x.trace")).certificate
    assert certificate["compiled_calls"] == calls
    said = [line for line in certificate["not_visible"] if "torch.compile" in line]
    assert said == [] if not text else said[0].startswith(text)
    missing = "code of torch.compile or AOTInductor ran, and its kernels are not recorded as hops"
    assert (missing in certificate["verdict"]) is bool(text)
    assert not (certificate["complete"] and text)
