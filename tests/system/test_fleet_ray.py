"""`tracer fleet --engine ray` on a cluster of several nodes, which all run on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from rank_traces import Rank, write_rank

from tracer.analysis.fleet.merge import merge
from tracer.analysis.fleet.partial import SCHEMAS
from tracer.fleet.gather import Gathered, gather
from tracer.fleet.on_ray import OnRay
from tracer.fleet.parts import Parts
from tracer.fleet.processes import Processes
from tracer.fleet.traces import find
from tracer.fleet.work import parquet

ray = pytest.importorskip("ray", reason="the package ray is not installed")

RANKS = 12


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: Ray sets variables of this process."""
    for name in ("PYTHONBREAKPOINT", "RAY_AUTH_MODE", "RAY_USAGE_STATS_ENABLED"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Three nodes; the processors of the first one are taken, so all work is on the others."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        for _ in range(2):
            nodes.add_node(num_cpus=1)
        nodes.wait_for_nodes()
        monkeypatch.setenv("RAY_ADDRESS", nodes.address)
        yield nodes
    finally:
        ray.shutdown()
        nodes.shutdown()


def test_a_cluster_of_several_nodes_gives_the_same_bytes(cluster: object, tmp_path: Path) -> None:
    job = tmp_path / "job"
    for rank in range(RANKS):
        write_rank(job / f"rank{rank:02}.trace", rank, RANKS, late=4_000 * (rank == 5), ops=1 + rank % 3)
    (job / "rank07.trace").write_bytes(b"no trace, and more than a few bytes of it")
    for rank, collective in enumerate(("allreduce_", "barrier")):  # dumps that wait in different collectives
        of = Rank(rank, 2, collective=f"c10d::{collective}").calls().at(10).calls(waits=True)
        of.write(tmp_path / "hang", dumped=3010)
    Rank(0, 2).calls().at(10).calls().write(tmp_path / "alone", dumped=3010)
    folders = [str(job), str(tmp_path / "hang"), str(tmp_path / "alone")]
    said: list[str] = []
    engines = {"processes": Processes(2), "ray": OnRay(said.append)}
    made = {}
    for name, engine in engines.items():
        out = tmp_path / name
        out.mkdir()
        parts = Parts(out)
        found = gather(parts, find(folders), engine)
        assert (found.read, len(found.errors)) == (RANKS + 2, 1)
        merged = merge(parts.all())
        for table, rows in merged.items():
            (out / f"{table}.parquet").write_bytes(parquet(rows))
        made[name] = {str(file.relative_to(out)): file.read_bytes() for file in out.rglob("*.parquet")}
    assert said == [], "the cluster that runs is used"
    assert len(made["ray"]) == len(merged) + len(SCHEMAS) * (RANKS + 3)
    assert made["ray"] == made["processes"]
    waits = {
        name: pl.read_parquet(tmp_path / "ray" / f"{name}.parquet") for name in ("mismatched", "unanswered")
    }
    assert waits["mismatched"].select("job", "ranks").rows() == [("hang", [0]), ("hang", [1])]
    assert waits["unanswered"].select("job", "ranks").rows() == [("alone", [0])]
    nodes = {node["NodeID"] for node in nodes_of(cluster)}
    assert len(nodes) == 3


def nodes_of(cluster: object) -> list[dict[str, str]]:
    ray.init(address=cluster.address, log_to_driver=False)  # type: ignore[attr-defined]
    return [node for node in ray.nodes() if node["Alive"]]


def test_without_a_cluster_one_is_started_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    trace = write_rank(tmp_path / "job" / "rank0.trace")
    said: list[str] = []
    found = gather(Parts(tmp_path / "out"), find([str(trace)]), OnRay(said.append))
    assert found == Gathered(read=1)
    assert said == ["no Ray cluster runs here; starting one on this machine alone"]
    assert not ray.is_initialized()


def test_a_cluster_that_does_not_answer_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tracer.fleet.fleet_errors import FleetError

    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    trace = write_rank(tmp_path / "job" / "rank0.trace")
    with pytest.raises(
        FleetError, match=r"no Ray cluster answers at RAY_ADDRESS=127.0.0.1:1 \(.*\); start one: ray"
    ):
        gather(Parts(tmp_path / "out"), find([str(trace)]), OnRay(lambda _: None))
