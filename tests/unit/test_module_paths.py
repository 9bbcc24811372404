"""The column `module`: which nn.Module was being called, from the events that say so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from frames import TraceBuilder, hop
from synthetic import AUTOGRAD_CPU, CERTIFICATE, REDISPATCH, Lane, TraceWriter

from tracer.analysis import flat
from tracer.analysis.trees import Forest, fold
from tracer.report.flat import flat_lines
from tracer.report.live_line import live_line
from tracer.report.reading import Reading
from tracer.report.report import render
from tracer.report.tree import plain, tree_lines
from tracer.trace import Trace, load
from tracer.trace.bytes.definitions import ModulePath
from tracer.trace.live.follower import Follower
from tracer.trace.names.modules import module_texts, modules_around

GRU, ROOT, LINEAR = 1, 2, 3


def new_writer() -> TraceWriter:
    writer = TraceWriter()
    writer.process()
    writer.hop(0, "aten::mm")
    writer.module_path(GRU, "encoder.gru", "Seq2Seq")
    writer.module_path(ROOT, "", "Seq2Seq")
    return writer


def run(lane: Lane, **options: int) -> None:
    lane.enter(0, **options)
    lane.exit()


def read(writer: TraceWriter, folder: Path) -> Trace:
    return load(writer.write(folder / "x.trace"))


def names(hops: pl.DataFrame) -> list[str | None]:
    return hops["module"].cast(pl.String).to_list()


def test_hops_have_the_module_said_last_and_those_inside_have_it_too(tmp_path: Path) -> None:
    writer = new_writer()
    lane = writer.lane()
    run(lane)
    lane.module(ROOT)
    run(lane)
    lane.module(GRU)
    lane.enter(0, AUTOGRAD_CPU)
    run(lane, call_site=REDISPATCH)
    lane.exit()
    lane.module(0)
    run(lane)
    assert names(read(writer, tmp_path).hops) == [None, "Seq2Seq", "encoder.gru", "encoder.gru", None]


def test_a_later_thread_of_a_lane_begins_without(tmp_path: Path) -> None:
    writer = new_writer()
    lane = writer.lane()
    lane.module(GRU)
    run(lane)
    lane.adopt(1001, 2)
    run(lane)
    assert names(read(writer, tmp_path).hops) == ["encoder.gru", None]


def test_ids_are_those_of_the_process(tmp_path: Path) -> None:
    writer = new_writer()
    writer.process(1, how=2)
    writer.hop(0, process=1)
    writer.module_path(GRU, "head", "Other", process=1)
    for process in (0, 1):
        lane = writer.lane(process)
        for number in (GRU, 9):  # 9 is not defined: the definition was lost
            lane.module(number)
            run(lane)
    assert names(read(writer, tmp_path).hops) == ["encoder.gru", None, "head", None]


def test_backward_hops_have_the_module_of_their_forward_hop_unless_they_run_in_one(tmp_path: Path) -> None:
    writer = new_writer()
    lane = writer.lane(torch_thread=1)
    for number, name in enumerate(("Mm", "Tanh", "MmBackward"), 1):
        lane.define_string(number, f"{name}Backward0")
    lane.module(GRU)
    run(lane, key_set=AUTOGRAD_CPU, sequence=0)
    lane.module(0)
    run(lane, key_set=AUTOGRAD_CPU, sequence=1)
    lane.node(2, sequence=1, made_by=1)
    run(lane)  # its forward hop ran in no module
    lane.node(1, sequence=0, made_by=1)
    run(lane, key_set=AUTOGRAD_CPU, sequence=2)
    lane.module(ROOT)  # called by a checkpoint, say
    run(lane)
    lane.module(0)
    lane.node(3, sequence=2, made_by=1)
    run(lane)  # a backward of a backward
    lane.node(0)
    run(lane)
    assert names(read(writer, tmp_path).hops) == [
        "encoder.gru",
        None,
        None,
        "encoder.gru",
        "Seq2Seq",
        "encoder.gru",
        None,
    ]


def test_paths_that_two_models_have_begin_with_their_class() -> None:
    generator, discriminator = (
        [ModulePath(names, root) for names in ("", "main.0", own)]
        for root, own in (("Generator", "main.7"), ("Discriminator", "out"))
    )
    others = [ModulePath("", "Loss"), ModulePath("net", "Encoder"), ModulePath("net.0", "Encoder")]
    assert module_texts([*generator, *discriminator, *others]) == [
        *("Generator", "Generator.main.0", "Generator.main.7"),
        *("Discriminator", "Discriminator.main.0", "Discriminator.out"),
        *("Loss", "net", "net.0"),
    ]
    assert module_texts(generator) == ["Generator", "main.0", "main.7"]


def test_a_step_knows_the_module_that_began_before_it(tmp_path: Path) -> None:
    writer = new_writer()
    lane = writer.lane()
    lane.module(GRU)
    for step in range(1, 4):
        run(lane)
        lane.step(step)
    path = writer.write(tmp_path / "x.trace")
    hops = load(path, step=2).hops
    assert names(hops.filter(pl.col("step") == 2)) == ["encoder.gru"]


def test_following(tmp_path: Path) -> None:
    writer = new_writer()
    lane = writer.lane()
    lane.module(GRU)
    lane.enter(0)
    run(lane)
    lane.exit()
    lane.module(0)
    run(lane)
    follower = Follower(writer.write(tmp_path / "x.trace"))
    assert follower.wait()
    hops = follower.look()
    follower.close()
    assert names(hops) == ["encoder.gru", "encoder.gru", None]
    outer, inner, alone = (plain(live_line(row, {})) for row in hops.iter_rows(named=True))
    assert " [in encoder.gru] " in outer
    assert "encoder" not in inner + alone


@pytest.mark.parametrize("stated", [{"modules": True}, {"modules": False}, {}])
def test_the_certificate_says_whether_modules_were_followed(tmp_path: Path, stated: dict) -> None:
    writer = TraceWriter()
    writer.process(certificate=CERTIFICATE | stated)
    certificate = read(writer, tmp_path).certificate
    assert {name: certificate[name] for name in stated} == stated
    assert ("modules" in certificate) == bool(stated)
    said = [line for line in certificate["not_visible"] if "module is null" in line]
    assert bool(said) == stated.get("modules", False)


def test_a_torn_event_is_left_out(tmp_path: Path) -> None:
    writer = new_writer()
    lane = writer.lane()
    lane.module(1 << 32 | GRU)
    run(lane)
    trace = read(writer, tmp_path)
    assert names(trace.hops) == [None]
    assert trace.certificate["torn_events"] == 1


def calls() -> TraceBuilder:
    builder = TraceBuilder()
    inner = hop("aten::mm", "CPU", self_ns=3000, module="layers.0")
    builder.calls(
        hop("aten::linear", "CPU", inner, module="layers.0"),
        hop(
            "aten::linear", "CPU", hop("aten::mm", "CPU", self_ns=3000, module="layers.1"), module="layers.1"
        ),
        hop("aten::sum", "CPU", module="Model"),
        hop("aten::tanh", "CPU"),
        hop("aten::mul", "CPU", backward_node="TanhBackward0", module="Model", self_ns=5000),
    )
    return builder


def test_a_folded_line_names_the_first_module_and_counts_the_others() -> None:
    trace = calls().trace()
    _, nodes = fold(Forest.of(trace.hops), ["source"])
    assert nodes.select("op", "level", "modules", "module").rows() == [
        ("aten::linear", 0, 2, "layers.0"),
        ("aten::mm", 1, None, "layers.0"),
        ("aten::sum", 0, 1, "Model"),
        ("aten::tanh", 0, 1, None),
        ("aten::mul", 0, 1, "Model"),
    ]
    lines = [plain(line) for line in tree_lines(nodes, trace.signatures)]
    assert "[in layers.0 and 1 more]" in lines[0]
    assert " 2 x " in lines[0]
    assert "layers" not in lines[1]
    assert "[in Model]" in lines[2]
    assert "[in" not in lines[3]
    narrow = [plain(line) for line in tree_lines(nodes, trace.signatures, width=30)]
    assert all(len(line) <= 30 for line in narrow)


def test_the_flat_table_and_the_report_have_a_row_a_module() -> None:
    trace = calls().trace()
    trace.modules = pl.DataFrame(
        [("Model", None), ("layers", "Model"), ("layers.0", "layers"), ("layers.1", "layers")],
        schema=trace.modules.schema,
        orient="row",
    )
    table = flat.ranked(flat.flat_table(trace, by="module"), "total")
    columns = (
        *("module", "calls", "hops", "self_ns", "total_ns", "forward_ns", "backward_ns", "optimizer_ns"),
        "rest_ns",
    )
    assert table.select(columns).rows() == [
        ("Model", 2, 2, 6000, 14_000, 9000, 5000, 0, 0),
        ("layers", 0, 0, 0, 8000, 8000, 0, 0, 0),
        ("layers.0", 2, 2, 4000, 4000, 4000, 0, 0, 0),
        ("layers.1", 2, 2, 4000, 4000, 4000, 0, 0, 0),
        (None, 1, 1, 1000, 1000, 0, 0, 0, 1000),
    ]
    text = render(Reading(trace, "x.trace"))
    section = " ".join(text.partition("## Modules")[2].partition("\n## ")[0].split())
    assert "| 6.00 us | 14.00 us | 93.3 % | 9.00 us | 5.00 us | | | 2 | 2 | `Model` |" in section
    assert "| | 8.00 us | 53.3 % | 8.00 us | | | | 0 | 0 | `layers` |" in section
    assert "| 1 | 1 | no module |" in section
    lines = [plain(line).split() for line in flat_lines(table, "module")]
    assert lines[0] == ["total", "forward", "backward", "self", "of", "self", "op", "calls", "hops", "module"]
    assert lines[1] == "14.0 us 9.0 us 5.0 us 6.0 us 40.0 % 2 2 Model".split()


def test_a_module_that_calls_itself_counts_once_and_only_chosen_hops_hide_others() -> None:
    inner = hop("aten::mm", "CPU", self_ns=3000, module="a.b")
    builder = TraceBuilder().calls(
        hop("my::op", "CPU", inner, hop("aten::neg", "CPU", module="a"), module="a")
    )
    trace = builder.trace()
    hops = trace.hops
    assert hops["module"].to_list() == ["a", "a.b", "a"]
    trace.modules = pl.DataFrame([("M", None), ("a", "M"), ("a.b", "a")], trace.modules.schema, orient="row")

    def totals(chosen: np.ndarray | None) -> dict[object, tuple[int, int]]:
        rows = flat.flat_table(trace, chosen, "module").select("module", "self_ns", "total_ns").rows()
        return {module: (own, total) for module, own, total in rows}

    assert totals(None) == {"a": (2000, 5000), "a.b": (3000, 3000), "M": (0, 5000)}
    inner_only = (hops["op"] != "my::op").to_numpy()
    assert totals(inner_only) == {"a": (1000, 4000), "a.b": (3000, 3000), "M": (0, 4000)}


def test_without_modules_there_is_no_table() -> None:
    builder = TraceBuilder()
    builder.calls(hop("aten::mm", "CPU"))
    trace = builder.trace()
    assert "## Modules" not in render(Reading(trace, "x.trace"))
    assert flat.flat_table(trace, by="module").select("module", "hops").rows() == [(None, 1)]


def test_the_table_of_modules_names_what_is_around_each(tmp_path: Path) -> None:
    writer = new_writer()
    writer.module_path(40, "a.b.0", "Net")
    run(writer.lane())
    assert dict(read(writer, tmp_path).modules.rows()) == {
        "Seq2Seq": None,
        "encoder": "Seq2Seq",
        "encoder.gru": "encoder",
        "Net": None,
        "a": "Net",
        "a.b": "a",
        "a.b.0": "a.b",
    }


def test_a_path_of_a_million_levels_is_cut() -> None:
    around = modules_around([ModulePath("x." * 1_000_000 + "y", "Net")])
    assert len(around) == 66
    assert sum(map(len, around)) < 3_000_000
