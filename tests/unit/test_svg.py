"""Pictures: of the hottest path (`tracer export --to svg`), of ratios, of a roofline."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import polars as pl
import pytest
from gpu_trace import PATH
from synthetic import TraceWriter
from typer.testing import CliRunner, Result

from tracer.analysis.paths import hottest_paths, survey_paths
from tracer.analysis.trees import Forest
from tracer.report.reading import Reading
from tracer.report.report import render
from tracer.report.svg.bars import Ratio, bars_svg
from tracer.report.svg.path import path_svg
from tracer.report.svg.picture import LETTER, Pictures
from tracer.trace import load

HOSTILE = '<script>alert(1)</script> & "quoted" \x1b[31mred ]]> {{ 7 * 7 }} {% raise %}'
SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def tracer(*arguments: str) -> Result:
    from tracer.cli.app import app

    return CliRunner().invoke(app, list(arguments))


def nodes_of(hops: pl.DataFrame) -> pl.DataFrame:
    forest = Forest.of(hops)
    return hottest_paths(forest, survey_paths(forest), 1).nodes


def is_within_its_box(svg: str) -> None:
    root = ElementTree.fromstring(svg)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    groups = [group for group in root.iter(f"{SVG}g") if "box" in group.attrib["class"]]
    assert groups
    for group in groups:
        (box,) = group.iter(f"{SVG}rect")
        x, y, wide, high = (float(box.attrib[name]) for name in ("x", "y", "width", "height"))
        assert x + wide <= width
        assert y + high <= height
        for text in group.iter(f"{SVG}text"):
            assert x < float(text.attrib["x"])
            assert float(text.attrib["x"]) + LETTER * len(text.text or "") <= x + wide
            assert y < float(text.attrib["y"]) < y + high


def test_a_path_from_the_line_to_the_kernel(tmp_path: Path) -> None:
    output = tmp_path / "path.svg"
    run = tracer("export", str(PATH), "--to", "svg", "--op", "addmm", "-o", str(output))
    assert run.exit_code == 0, run.output
    assert re.search(r"wrote .*path.svg: the hottest of \d+ paths", run.stderr)
    svg = output.read_text()
    found = texts(svg)
    assert re.match(r".*sample\.py:\d+", found[0])
    assert any("aten::addmm [CUDA]" in text for text in found)
    assert any("cublasLtMatmul" in text for text in found)
    assert any("GPU " in text and "kernel" in text for text in found)
    is_within_its_box(svg)
    kinds = set(re.findall(r'class="box (\w+)"', svg))
    assert {"autograd", "backend", "library", "api", "gpu"} <= kinds


@pytest.mark.parametrize(
    ("options", "words"),
    [([], "no path to draw"), (["--exclude", "*"], "no hop meets all of these conditions; remove one")],
)
def test_where_no_hop_is_left_there_is_no_picture(tmp_path: Path, options: list[str], words: str) -> None:
    writer = TraceWriter()
    writer.process()
    trace = PATH if options else writer.write(tmp_path / "run.trace")
    output = tmp_path / "path.svg"
    run = tracer("export", str(trace), "--to", "svg", *options, "-o", str(output))
    assert run.exit_code == 1, run.output
    assert words in run.stderr
    assert not output.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-o", "x.png"], "give a file that ends in .svg"),
        (["-o", "none/x.svg"], "folder none does not exist"),
        (["-o", "there.svg"], "overwrite it with --force"),
    ],
)
def test_wrong_usage(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.svg").write_text("mine")
    run = tracer("export", str(PATH), "--to", "svg", *arguments)
    assert run.exit_code == 2
    assert words in run.stderr
    assert (tmp_path / "there.svg").read_text() == "mine"
    assert tracer("export", str(PATH), "--to", "svg", "-o", "there.svg", "--force").exit_code == 0
    assert (tmp_path / "there.svg").read_text().startswith("<svg ")


def test_no_name_becomes_markup() -> None:
    hops = load(PATH).hops.with_columns(
        op=pl.lit(HOSTILE).cast(pl.Categorical), kernel=pl.lit(HOSTILE).cast(pl.Categorical)
    )
    svg = path_svg(nodes_of(hops), [HOSTILE])
    assert "<script" not in svg
    assert "\x1b" not in svg
    assert "49" not in texts(svg)[0]
    assert "<script>" in texts(svg)[0]
    is_within_its_box(svg)
    bars = bars_svg(HOSTILE, [Ratio(HOSTILE, 2.0, 1.5, 2.5, HOSTILE)])
    assert "<script" not in bars
    assert "<script>" in texts(bars)[0]


def test_bars_go_right_above_one_and_left_below() -> None:
    svg = bars_svg(
        "ratios",
        [
            Ratio("faster", 4.0, 3.5, 4.5, "4 us -> 1 us"),
            Ratio("slower", 0.5, 0.4, 0.6, "1 us -> 2 us"),
            Ratio("undecided", 1.1, 0.9, 1.3, "1 us -> 1 us"),
        ],
    )
    root = ElementTree.fromstring(svg)
    bars = {
        rect.attrib["class"]: (float(rect.attrib["x"]), float(rect.attrib["width"]))
        for rect in root.iter(f"{SVG}rect")
        if rect.attrib["class"] != "page"
    }
    one = bars["faster"][0]
    assert bars["slower"][0] + bars["slower"][1] == pytest.approx(one)
    assert bars["same"][0] == one
    assert bars["faster"][1] == pytest.approx(2 * bars["slower"][1], rel=0.01)
    ticks = {text.text: float(text.attrib["x"]) for text in root.iter(f"{SVG}text") if "x" in text.attrib}
    assert ticks["1 x"] == pytest.approx(one)


def test_a_report_puts_its_pictures_beside_it(tmp_path: Path) -> None:
    output = tmp_path / "my report.md"
    run = tracer("report", str(PATH), "-o", str(output))
    assert run.exit_code == 0, run.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my report.md", "my report.roofline.svg"]
    assert "![Roofline of the kernels](my%20report.roofline.svg)" in output.read_text()
    assert "pictures beside it: my report.roofline.svg" in run.stderr
    svg = (tmp_path / "my report.roofline.svg").read_text()
    points = list(ElementTree.fromstring(svg).iter(f"{SVG}circle"))
    assert len(points) > 5
    assert any(text.endswith("FLOP/s") for text in texts(svg))


def test_a_report_on_stdout_is_text_alone() -> None:
    reading = Reading(load(PATH), "gpu.trace")
    assert ".svg" not in render(reading)
    pictures = Pictures("run")
    assert "(run.roofline.svg)" in render(reading, pictures)
    assert list(pictures.made) == ["run.roofline.svg"]
