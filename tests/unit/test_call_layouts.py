"""The text in which a trace has the fields of a function."""

from __future__ import annotations

from tracer.trace.tables.call_arguments import parse_layout


def test_a_line_of_another_form_is_left_out() -> None:
    wrong = ["enter\tn\tint\t" + "9" * 5000 + "\t4", "enter\tn\tint\t²\t4", "enter\tn\tint\t0\t0", "x", ""]
    (field,) = parse_layout("\n".join([*wrong, "enter\tm\tint\t8\t4", "enter\tagain\tint\t8\t4"]))
    assert (field.name, field.offset, field.size, field.at_exit) == ("m", 8, 4, False)
