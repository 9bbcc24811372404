"""No text of a trace becomes code of the script that `tracer replay --script` and `--ncu` write."""

from __future__ import annotations

import ast
import io
import tokenize
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tracer.analysis.recorded_call import RecordedCall
from tracer.base.boundary import StrangeTextError
from tracer.replay.arguments import Argument, Constant, Device, Dtype, TensorPlan
from tracer.replay.call import Call
from tracer.replay.script import script_of

CODE = "__import__('os').system('id')"
PAYLOADS = [
    f"{start}{CODE}{end}"
    for start, end in (
        *(("\n", "\n"), ("\r", "\r"), ("\x0c\n", ""), ("\u2028", ""), ("\x85", ""), ("\0", "")),
        *((" or ", ""), (".", ""), ("float32), ", ""), ("x, ", "#"), ("", ""), ("x\n", "")),
        *(('cpu" or ', ' or "'), ("cpu' or ", " or '"), ("\\", ""), ("'''", "'''"), ('"""', '"""')),
    )
]
# Python decodes a file by a comment of its first two lines: then \n in a text is a new line, and \' a quote.
COOKIES = [
    f"{before} coding{sign}{codec} {new_line}{CODE}{new_line}#"
    for before in ("", "-*-", "vim: set file")
    for sign in (":", "=")
    for codec, new_line in (
        *(("unicode_escape", r"\n"), ("raw_unicode_escape", r"\u000a"), ("utf_7", "+AAo-")),
        *(("latin-1", ""), ("punycode", ""), ("rot13", ""), ("nosuch", "")),
    )
]


def script(**texts: Any) -> str:
    """A script with this text in one place, and harmless ones in the others."""

    def of(field: str, harmless: str) -> str:
        return texts.get(field, harmless)

    recorded = RecordedCall(
        0,
        0,
        of("op", "aten::mm"),
        "CPU",
        "CPU",
        of("line", "a.py:3"),
        of("text", "x"),
        of("torch", "2"),
        {},
        {},
    )
    tensor = TensorPlan(
        (2, 2), (2, 1), of("dtype", "int64"), of("device", "cuda:0"), False, False, False, False
    )
    values = [
        tensor,
        [tensor, None],
        Dtype(of("dtype_value", "float32")),
        Device(of("device_value", "cpu")),
        Constant(of("constant", "channels_last")),
        of("value", "tanh"),
        [1, 2.5, float("inf"), 1 + 2j, True, of("in_list", "x")],
    ]
    arguments = [Argument(f"a{n}", value, "recorded", keyword=n > 4) for n, value in enumerate(values)]
    arguments[0] = replace(arguments[0], name=of("first_name", "self"))
    arguments[-1] = replace(arguments[-1], name=of("last_name", "other"))
    schema = SimpleNamespace(name=of("schema", "aten::mm"), overload_name=of("overload", "out"))
    return script_of(recorded, Call(SimpleNamespace(_schema=schema), arguments, of("key", "CPU")))


FIELDS = (
    "op line text torch dtype device dtype_value device_value constant value in_list first_name last_name "
    "schema overload key"
).split()


def shape_of(text: str) -> str:
    """What its file does: its syntax, with every text that is data taken out."""
    tree = ast.parse(text.encode())
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return ast.dump(tree)


@pytest.mark.parametrize("field", FIELDS)
def test_a_text_of_a_trace_is_data_or_refused(field: str) -> None:
    wanted = shape_of(script())
    for payload in (*PAYLOADS, *COOKIES):
        # `Autocast` is a key that the script itself names.
        for text in (payload, f"Autocast{payload}") if field == "key" else (payload,):
            try:
                made = script(**{field: text})
            except StrangeTextError:
                continue
            assert tokenize.detect_encoding(io.BytesIO(made.encode()).readline)[0] == "utf-8", (field, text)
            assert shape_of(made) == wanted, (field, text)
            assert all(map(str.isprintable, made.split("\n"))), (field, text)


def test_every_field_is_in_the_script_or_in_none() -> None:
    """So that the test above means something: a word of the right form does arrive."""
    harmless = {"dtype": "int32", "device": "cuda:7", "device_value": "cuda:7", "op": "aten::sin"}
    harmless |= {"schema": "aten::sin", "key": "AutocastXPU"}
    for field in FIELDS:
        given = harmless.get(field, "harmless_word")
        shown = given.removeprefix("Autocast").lower().replace("::", ".")
        assert (shown in script(**{field: given})) == (field not in ("op", "text")), field
