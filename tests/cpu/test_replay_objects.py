"""Arguments that are more than tensors, numbers and texts: a replay says that they are not recorded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from lazily import torch
from typer.testing import CliRunner, Result

import tracer
from tracer.cli.app import app


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The same calls with and without their values."""
    folder = tmp_path_factory.mktemp("objects")
    library = torch.library.Library("replay_objects", "FRAGMENT")
    library.define("scaled(Dict(str, Tensor) parts, float by=2.0) -> Tensor")
    library.define("counted(Dict(str, int) counts) -> Tensor")
    library.define("maybe(Tensor x, Dict(str, float)? options=None) -> Tensor")
    library.impl("scaled", lambda parts, by=2.0: parts["x"] * by, "CompositeExplicitAutograd")
    library.impl("counted", lambda counts: torch.ones(counts["n"]), "CompositeExplicitAutograd")
    library.impl("maybe", lambda x, options=None: x + 1, "CompositeExplicitAutograd")
    x, ops = torch.ones(2, 2), torch.ops.replay_objects
    packed = torch.ops.quantized.linear_prepack(torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), None)
    try:
        for name, values in (("with", "scalars"), ("without", "none")):
            with tracer.record(folder / f"{name}.trace", values=values):
                ops.scaled({"x": x})
                ops.counted({"n": 3})
                ops.maybe(x)
                ops.maybe(x, {"a": 1.0})
                torch.ops.quantized.linear_dynamic(x, packed)
                torch.empty(0).set_(x.untyped_storage())
        yield folder
    finally:
        library._destroy()


def replay(path: Path, op: str, number: int, *more: str) -> Result:
    hops = tracer.load(path).hops.filter(pl.col("op") == op, pl.col("kind") == "call")
    words = ["replay", str(path), "--hop", str(hops["id"][number]), "--import", "torch", *more]
    return CliRunner().invoke(app, words)


@pytest.mark.parametrize("name", ["with", "without"])
@pytest.mark.parametrize(
    ("op", "what"),
    [
        ("replay_objects::scaled", "argument 0 'parts' of replay_objects::scaled is a dictionary ("),
        ("replay_objects::counted", "argument 0 'counts' of replay_objects::counted is a dictionary ("),
        ("quantized::linear_dynamic", "argument 1 'W_prepack' of quantized::linear_dynamic is a script obj"),
        ("aten::set_.source_Storage", "argument 1 'source' of aten::set_.source_Storage is an object (Sto"),
    ],
)
@pytest.mark.parametrize("more", [[], ["--key", "CPU"]], ids=["as it was", "at a key"])
def test_it_is_named_as_not_recorded(traces: Path, name: str, op: str, what: str, more: list[str]) -> None:
    run = replay(traces / f"{name}.trace", op, 0, *more)
    assert (run.exit_code, run.stdout) == (1, "")
    assert run.stderr.startswith(f"tracer: {what}")
    assert run.stderr.endswith("), whose content is not recorded; no --arg can give it\n")


def test_one_that_was_not_given_is_replayed(traces: Path) -> None:
    """None of an optional one is recorded with the values; without them the schema's default is None."""
    for name in ("with", "without"):
        run = replay(traces / f"{name}.trace", "replay_objects::maybe", 0)
        assert run.exit_code == 0, run.stderr
    given = replay(traces / "with.trace", "replay_objects::maybe", 1)
    assert (given.exit_code, "a dictionary (Optional[Dict" in given.stderr) == (1, True)
