"""Reports on a terminal: no line is wider, and nothing of a table is lost."""

from __future__ import annotations

import re

import pytest
from rich.cells import cell_len

from tracer.report.cells import fenced, table
from tracer.report.fitted import fitted
from tracer.report.fitted_table import fitted_table
from tracer.report.text import shorten_path

LONG = "models/transformer/attention_layers_of_the_encoder/multi_head_attention.py"


def test_what_fits_stays_as_it_is() -> None:
    text = "# job\n\n" + table(["rank", "waited"], [["0", "1.2 ms"], ["1", "3 us"]]) + "\n"
    assert fitted(text, 80) == text


def test_titles_are_wrapped_first() -> None:
    rows = [["0", "57.9 ms", "1,179", "623.0 us"], ["1", "57.5 us", "1,178", ""]]
    text = table(["rank", "median step", "op calls", "others waited"], rows)
    assert fitted(text, 42).splitlines() == [
        "| rank | median step | op    | others   |",
        "|      |             | calls | waited   |",
        "| ---- | ----------- | ----- | -------- |",
        "| 0    | 57.9 ms     | 1,179 | 623.0 us |",
        "| 1    | 57.5 us     | 1,178 |          |",
    ]


def test_units_move_into_titles_where_that_is_narrower() -> None:
    rows = [["`aten::mm`", "1,234.5 ms", "1 B", "1.0 ms"], ["`b`", "2.0 ms", "2 B", "12.0 us"]]
    assert fitted(table(["op", "in all:", "bytes", "at:"], rows), 42).splitlines() == [
        "| in all, |      at | op         | bytes |",
        "|      ms |         |            |       |",
        "| ------: | ------: | ---------- | ----- |",
        "| 1,234.5 |  1.0 ms | `aten::mm` | 1 B   |",
        "|     2.0 | 12.0 us | `b`        | 2 B   |",
    ]


def test_what_is_the_same_in_all_rows_is_said_once_and_the_widest_goes_below() -> None:
    rows = [
        [f"`c10d::{op}`", f"`train.py:{line}`", "`0`", "4", waited, ""]
        for op, line, waited in (("allreduce_", 18, "1.7 s"), ("broadcast_", 9, "3.0 ms"))
    ]
    text = table(["op", "line", "group", "ranks", "waited", "transfer"], rows)
    assert fitted(text, 40).splitlines() == [
        "In each row: group: `0`; ranks: 4.",
        "",
        "| op                 | waited |",
        "| ------------------ | ------ |",
        "| `c10d::allreduce_` | 1.7 s  |",
        "|   line: `train.py:18`",
        "| `c10d::broadcast_` | 3.0 ms |",
        "|   line: `train.py:9`",
    ]


@pytest.mark.parametrize("width", [24, 40, 60, 80, 120])
def test_no_line_is_wider_and_each_word_is_there(width: int) -> None:
    names = [f"`{LONG}:{line}`" for line in (7, 130)]
    rows = [
        [f"`aten::an_op_with_a_name_of_{n}`", names[n], f"{n}", "no line explains it " * 5, f"{n + 1}.5 ms"]
        for n in range(2)
    ]
    titles = ["op", "line", "number:", "where it lost the time", "waited (median)"]
    text = "\n".join(
        [
            f"- an item about {names[0]} that goes on for longer than any terminal is wide, and on",
            "",
            table(titles, rows),
            "",
            fenced(["    if x: " + "y " * 70, "else"]),
            "",
            f"A text. {'Long. ' * 30}",
        ]
    )
    shown = fitted(text, width)
    assert max(map(len, shown.splitlines())) <= width
    if width < 60:  # the name of the op is broken, beside other cells
        return
    joined = re.sub(r"[|\s-]", "", shown)
    for word in (*names, *(row[0] for row in rows), "noline", "explainsit", "else"):
        assert re.sub(r"[|\s-]", "", word) in joined, word


def test_breaks_and_escaped_pipes_in_cells() -> None:
    text = table(["line", "op", "calls:"], [["`a.py:1`<br>`x | y`", "`" + "o" * 30 + "`", "1"]])
    shown = fitted_table(text.splitlines(), 40)
    assert shown == [
        "| calls | line     |",
        "| ----: | -------- |",
        "|     1 | `a.py:1` |",
        "|       | `x \\| y` |",
        "|   op: `" + "o" * 30 + "`",
    ]


def test_lines_of_one_paragraph_are_joined_and_items_are_not() -> None:
    first, second = "word " * 9 + "end", "- item " + "more " * 9
    assert fitted(f"{first}\nnext\n{second}\n- two", 30).splitlines() == [
        "word word word word word word",
        "word word word end next",
        "- item more more more more",
        "  more more more more more",
        "- two",
    ]


def test_paths_are_shortened_from_the_left_at_a_folder() -> None:
    assert shorten_path("train.py:7", 44) == "train.py:7"
    assert shorten_path(f"{LONG}:7", 44) == ".../multi_head_attention.py:7"
    assert shorten_path(f"{LONG}:7", 20) == "...ad_attention.py:7"


def test_wide_characters_take_two_cells() -> None:
    rows = [["`线性投影层`", "1.2 ms", "模型/注意力.py:25"], ["`aten::mm`", "12.0 us", "b.py:7"]] * 2
    for width in (60, 200):
        lines = fitted(table(["op", "in all:", "line"], rows), width).splitlines()
        assert len(lines) == 6
        assert {cell_len(line) for line in lines} == {cell_len(lines[0])}
        assert cell_len(lines[0]) <= width
    narrow = fitted(table(["op", "in all:", "line"], rows), 24).splitlines()
    assert max(map(cell_len, narrow)) <= 24
    assert max(map(cell_len, fitted("这是一个很长的句子" * 9, 31).splitlines())) <= 31
    assert fitted("这是一个很长的句子" * 9, 31).replace("\n", "") == "这是一个很长的句子" * 9


def test_the_number_of_a_line_stays_in_one_piece() -> None:
    path = "a_folder_with_a_name/" * 3 + "and_a_file_with_a_long_name_of_its_own.py"
    for width in range(24, 90):
        for number in (7, 25, 1250):
            lines = fitted(f"{path}:{number}", width).splitlines()
            assert lines[-1].endswith(f":{number}"), (width, lines)


def test_links_to_sections_are_left_out() -> None:
    text = "# A\n\n[In one look](#in-one-look) · [Time](#time)\n\n## In one look\n"
    assert fitted(text, 80) == "# A\n\n## In one look\n"
    assert fitted("[one link](#a) in a sentence\n", 80) == "[one link](#a) in a sentence\n"
