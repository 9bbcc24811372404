"""Which storage and which version the tensors of a call have, in recordings with `--values scalars`."""

from __future__ import annotations

import ctypes
import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from launching import Launcher
from lazily import torch

import tracer
from tracer.trace import Trace

Row = tuple[int | None, int | None]
"""Storage and version"""


def record(path: Path, program: Callable[[], object], values: str = "scalars", **options: Any) -> Trace:
    with tracer.record(path / "run.trace", values=values, **options):
        program()
    return tracer.load(path / "run.trace")


def calls(trace: Trace, op: str) -> list[int]:
    """Outermost hops of the op, in the order of time."""
    outermost = trace.hops.filter(pl.col("parent").is_null() & (pl.col("op").cast(pl.String) == op))
    return outermost.sort("start_ns")["id"].to_list()


def tensors(trace: Trace, hop: int, *, results: bool = False) -> list[Row]:
    own = trace.tensors.filter((pl.col("hop") == hop) & (pl.col("result") == results))
    assert own["number"].to_list() == list(range(len(own)))
    return own.select("storage", "version").rows()


def storages(trace: Trace, op: str, *, results: bool = False) -> list[list[int | None]]:
    return [[row[0] for row in tensors(trace, hop, results=results)] for hop in calls(trace, op)]


class HeapFigures(ctypes.Structure):
    """What mallinfo2() returns."""

    _fields_ = tuple((f"_{number}", ctypes.c_size_t) for number in range(10))


LIBC = ctypes.CDLL(None)


def bytes_in_use() -> int:
    """Of the heap of malloc()."""
    return int(LIBC.mallinfo2()._7)


@pytest.mark.promise("record", "docs/record.md")
def test_views_share_a_storage_and_clones_do_not(tmp_path: Path) -> None:
    def program() -> None:
        one = torch.ones(4, 4)
        one.neg()
        one[1].neg()
        one.t().neg()
        one.clone().neg()

    trace = record(tmp_path, program)
    (first,), (row,), (turned,), (copy,) = storages(trace, "aten::neg")
    assert first == row == turned != copy
    assert None not in (first, copy)
    assert storages(trace, "aten::clone") == [[first]]
    assert storages(trace, "aten::clone", results=True) == [[copy]]
    assert storages(trace, "aten::t", results=True) == [[first]]


def test_a_storage_at_the_address_of_one_that_was_freed_has_a_new_number(tmp_path: Path) -> None:
    addresses = []

    def program() -> None:
        for _ in range(3000):  # more than are kept before those that are gone are looked for
            one = torch.empty(64)
            one.neg_()
            addresses.append((one.untyped_storage()._cdata, one.data_ptr()))
            del one

    trace = record(tmp_path, program)
    numbers = [number for (number,) in storages(trace, "aten::neg_")]
    assert len({data for _, data in addresses}) < 3000  # memory was used again
    assert len(set(numbers)) == 3000


@pytest.mark.skipif(not hasattr(LIBC, "mallinfo2"), reason="needs glibc 2.33")
def test_storages_that_die_young_are_let_go_soon(tmp_path: Path) -> None:
    """Each that is kept lies in the heap between blocks of the program, which cannot be joined then.

    A program that made 600 KB for each of its parameters had a thousand page faults more in a step, and its
    optimizer seemed to take half as long again.
    """
    LIBC.mallinfo2.restype = HeapFigures
    heap = []

    def program() -> None:
        for number in range(600):
            torch.empty(64).neg_()
            if number >= 100:
                heap.append(bytes_in_use())

    record(tmp_path, program)
    assert max(heap) - heap[0] < 500 * 50, "less than 50 bytes of each"


def test_a_version_counts_what_was_written(tmp_path: Path) -> None:
    def program() -> None:
        one = torch.ones(3)
        for _ in range(3):
            one.add_(1)
        one[0].mul_(2)
        one.neg()

    trace = record(tmp_path, program)
    added = calls(trace, "aten::add_.Tensor")
    assert [tensors(trace, hop)[0][1] for hop in added] == [0, 1, 2]
    assert [tensors(trace, hop, results=True)[0][1] for hop in added] == [1, 2, 3]
    (negated,) = calls(trace, "aten::neg")
    assert tensors(trace, negated)[0][1] == 4  # a view counts with its base


def test_what_has_no_version_or_no_storage_is_null(tmp_path: Path) -> None:
    class Own(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            with torch._C._DisableTorchDispatch():
                return function(*args, **(kwargs or {}))

    def program() -> None:
        with torch.inference_mode():
            torch.ones(3).neg()
        torch.ones(3).to_sparse().neg()
        torch.ones(3).as_subclass(Own).neg()

    trace = record(tmp_path, program)
    inference, sparse, own = (tensors(trace, hop) for hop in calls(trace, "aten::neg"))
    assert [(storage is None, version) for storage, version in inference] == [(False, None)]
    assert sparse == [(None, 0)]
    assert own[0][0] is None


def test_lists_are_there_up_to_what_a_signature_has(tmp_path: Path) -> None:
    parts = []

    def program() -> None:
        parts.extend(torch.ones(2) for _ in range(70))
        torch.cat(parts[:3])
        torch.cat([parts[0], parts[0]])
        torch._foreach_add(parts, 1)
        torch.ones(6).split(2)

    trace = record(tmp_path, program)
    three, same = (tensors(trace, hop) for hop in calls(trace, "aten::cat"))
    assert len({storage for storage, _ in three}) == 3
    assert same == [three[0]] * 2
    (added,) = calls(trace, "aten::_foreach_add.Scalar")
    assert len(tensors(trace, added)) == len(tensors(trace, added, results=True)) == 64
    assert tensors(trace, added)[:3] == three
    (split,) = storages(trace, "aten::split.Tensor", results=True)
    assert len(split) == 3
    assert len(set(split)) == 1


def test_results_have_shapes_dtypes_and_devices(tmp_path: Path) -> None:
    def program() -> None:
        torch.ones(3, 4).double().max(1)
        torch.empty(2, 5, device="meta").t()

    trace = record(tmp_path, program)

    def results(op: str) -> list[tuple[Any, ...]]:
        (hop,) = calls(trace, op)
        signature = trace.tensors.filter((pl.col("hop") == hop) & pl.col("result"))["signature"]
        assert signature.n_unique() == 1
        rows = trace.signatures.filter(pl.col("id") == signature[0])
        return rows.select("position", "shape", "dtype", "device").rows()

    assert results("aten::max.dim") == [(0, [3], "torch.float64", "cpu"), (1, [3], "torch.int64", "cpu")]
    assert results("aten::t") == [(0, [5, 2], "torch.float32", "meta")]


def test_each_op_call_has_its_arguments_and_results(tmp_path: Path) -> None:
    def program() -> None:
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
        model(torch.ones(3, 4)).sum().backward()

    trace = record(tmp_path, program, "all")
    got = trace.tensors.filter(~pl.col("result"))
    counts = trace.signatures.group_by("id").len()
    per_hop = got.group_by("hop").len(name="found").join(trace.hops, left_on="hop", right_on="id")
    per_hop = per_hop.join(counts, left_on="inputs", right_on="id")
    assert (per_hop["found"] == per_hop["len"]).all()
    assert len(per_hop) == trace.hops["inputs"].is_in(counts["id"].implode()).sum()
    # What --values hash has of results is of the same hops.
    assert set(trace.values["hop"]) == set(trace.tensors.filter(pl.col("result"))["hop"])
    # What one op returned the next one got.
    (relu,) = calls(trace, "aten::relu")
    first, last = calls(trace, "aten::linear")
    assert tensors(trace, first, results=True) == tensors(trace, relu)
    assert tensors(trace, relu, results=True)[0] == tensors(trace, last)[0]


def test_threads_number_storages_together(tmp_path: Path) -> None:
    shared = torch.ones(8)

    def work() -> None:
        for _ in range(300):
            (shared + 1).neg()

    def program() -> None:
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    trace = record(tmp_path, program)
    assert {row[0] for row in storages(trace, "aten::add.Tensor")} == {
        storages(trace, "aten::add.Tensor")[0][0]
    }
    made = [storage for (storage,) in storages(trace, "aten::neg")]
    assert len(set(made)) == len(made) == 600


FORKS = """
import os, torch
one = torch.ones(3)
one.neg()
child = os.fork()
one.neg()
torch.ones(3).abs()
if child:
    os.wait()
"""


def test_a_forked_child_knows_the_storages_of_its_parent(launcher: Launcher) -> None:
    launcher.write(FORKS)
    assert launcher.record("--values", "scalars", "-o", "run.trace", "script.py").status == 0
    trace = tracer.load(launcher.folder / "run.trace")
    assert trace.certificate["verdict"].startswith("complete")
    assert trace.hops["process"].n_unique() == 2
    before, again, in_child = storages(trace, "aten::neg")
    assert before == again == in_child != [None]
    assert all(storage != before for storage in storages(trace, "aten::abs"))


def test_nothing_is_kept_and_no_count_changes(tmp_path: Path) -> None:
    ended = []

    bare = torch.ones(3)
    unseen = torch._C._storage_Use_Count(bare.untyped_storage()._cdata)

    def program() -> None:
        one = torch.ones(3)
        one.neg()
        storage = one.untyped_storage()
        assert torch._C._storage_Use_Count(storage._cdata) == unseen
        weakref.finalize(storage, ended.append, "python")
        data = bytearray(64)
        weak = one.untyped_storage()._weak_ref()
        del one, storage
        gc.collect()
        assert torch.UntypedStorage._expired(weak)
        torch.UntypedStorage._free_weak_ref(weak)
        assert ended == ["python"]
        memory = memoryview(data)
        torch.frombuffer(memory, dtype=torch.uint8).neg_()
        memory.release()  # refuses while a tensor has it

    record(tmp_path, program)


@pytest.mark.parametrize("values", ["none", "hash"])
def test_without_the_option_nothing_is_read_of_them(tmp_path: Path, values: str) -> None:
    trace = record(tmp_path, lambda: torch.ones(3).neg(), values)
    assert trace.tensors.is_empty()


def test_without_shapes_there_is_nothing_that_a_number_could_belong_to(tmp_path: Path) -> None:
    trace = record(tmp_path, lambda: torch.ones(3).neg(), shapes=False)
    assert trace.tensors.is_empty()
    assert calls(trace, "aten::neg")


def test_a_small_ring_has_whole_calls(tmp_path: Path) -> None:
    def program() -> None:
        one = torch.ones(3)
        for _ in range(100_000):
            one.neg()

    trace = record(tmp_path, program, max_size="16M")
    assert 1000 < trace.hops.height < 200_000
    returned = trace.tensors.filter("result").join(trace.hops, left_on="hop", right_on="id")
    assert (
        returned["op"].cast(pl.String).is_in(["aten::neg", "aten::ones", "aten::empty.memory_format"]).all()
    )
    passed = trace.tensors.filter(~pl.col("result"))
    assert passed["storage"].n_unique() <= 2
    assert not passed["signature"].null_count()
