"""Names of a stranger's trace that are too long: of groups of ranks, and of folders that are made of them."""

from __future__ import annotations

import json

import polars as pl

from tracer.analysis.job.collectives import groups_of
from tracer.fleet.parts import _quoted
from tracer.interactive.magic import _parser


def test_a_group_whose_name_was_cut_is_not_known() -> None:
    whole = json.dumps({"process_group": "0"})
    scalars = pl.DataFrame({"id": [1, 2], "value": [whole, json.dumps({"process_group": "0" * 9000})[:500]]})
    assert groups_of(scalars).rows() == [(1, "0")]


def test_a_folder_of_a_long_name_has_its_check_sum() -> None:
    one, other = _quoted("a" * 300), _quoted("a" * 299 + "b")
    assert max(len(one), len(other)) < 255
    assert one != other
    assert _quoted("host-1.example") == "host-1.example"


def test_an_option_of_the_magic_may_be_given_twice() -> None:
    given = _parser().parse_args(["--ops", "aten::mm", "--ops", "aten::add"])
    assert given.ops == ["aten::mm", "aten::add"]
    assert _parser().parse_args([]).ops == []
