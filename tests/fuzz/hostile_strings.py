"""Traces whose texts are made to fool: a terminal, markdown, a browser, a shell, Python, paths and tables."""

from __future__ import annotations

import random

import bases  # noqa: F401 (so that helpers of tests/unit are found)
from every_kind import written
from every_text import changed, places
from mutations import NAMES, Base

PLANTED = "planted"
"""Each text that is code has it: where it runs or names a file, it is seen"""
RUNS = f"__import__('os').system('touch {PLANTED}')"
VALUES = (
    *NAMES,
    f"x\n{RUNS}\n#",
    f"x\r{RUNS}\r#",
    f"x\x0b\x0c\x1c\x85\u2028{RUNS}#",
    f"torch.float32), {RUNS}, (0",
    f'cpu" if not {RUNS} else "cpu',
    f"'+{RUNS}+'",
    f'"""\n{RUNS}\n"""',
    f"{{{RUNS}}}",
    f"\\N{{DIGIT ONE}}\\x0a{RUNS}",
    f"x coding=unicode_escape \\n{RUNS}\\n#",
    f"x coding:raw_unicode_escape \\u000a{RUNS}\\u000a#",
    f"x coding=utf_7 +AAo-{RUNS}+AAo-#",
    "x coding=latin-1",
    f"$(touch {PLANTED})",
    f"`touch {PLANTED}`; touch {PLANTED} | touch {PLANTED} &",
    f"-o{PLANTED}",
    f"--output={PLANTED}",
    f"./{PLANTED}.py",
    f"../{PLANTED}/x.py:3",
    f"/tmp/{PLANTED}/../{PLANTED}.so",
    f"file:///{PLANTED}",
    f"https://user:{PLANTED}@127.0.0.1:9/x",
    "con\x00trol\x1b[2J\x1b]0;t\x07\x9b31m",
    "\u202eright to left\u202c\u2066\u2069\u200f",
    "*/--><![CDATA[</script></style><script>alert(1)</script>",
    "=cmd|' /C calc'!A0",
    "%s%n{0}{x.__class__}${x}",
    "²",
    "٣",
    "9" * 5000,
    "-1",
    "nan",
    "1e999",
    "a::b.c::d#e:f/g:h",
    "." * 300,
    ":" * 300,
    "#" * 300,
    "(" * 300 + ")" * 200,
    "<" * 300,
    "x." * 2000,
    "_ZN" * 500,
    "_Z" + "9" * 5000,
    "ReduceOp<" * 900,
    "a<{lambda" * 900,
    f"enter\tm\tint\t{'9' * 5000}\t4\n",
    "torch_dynamo_resume_in_" * 3000,
    " ",
    "\t",
    "\ufeff",
    "null",
    "aten::mm",
    "Optimizer.step#x.y",
    "\x1fcall:²",
    "\x1fkernel:#",
    "\x1fphase:",
    "\x1fhanded over:\x1b]0;x\x07\n# title",
    "torch.save",
    "torch.nosuch",
    "cuda:99999999999999999999",
    "weird",
)


def base() -> Base:
    return Base("every kind", written(closed=True).data())


def case(seed: int, number: int) -> tuple[str, bytes]:
    """One hostile value in the place of one kind of text, or of all, or a value for each."""
    rng = random.Random(f"strings/{seed}/{number}")
    data = base().data
    every = places(data)
    values = [rng.choice(VALUES) for _ in range(rng.choice((1, 1, 3)))]
    chosen = set(rng.sample(every, rng.choice((1, 1, 3, len(every) // 2, len(every)))))
    add = rng.random() < 0.2  # to the end of what was there

    def change(place: str, text: str) -> str:
        if place not in chosen or place == "document" or (place.endswith("}") and rng.random() < 0.7):
            return text
        return text + rng.choice(values) if add else rng.choice(values)

    return "strings", changed(data, change)


def everywhere(value: str) -> bytes:
    """The value in the place of all texts; names of documents and of their fields stay."""
    return changed(
        base().data,
        lambda place, text: text if place == "document" or place.endswith("}") else value,
    )


def at(where: str, value: str) -> bytes:
    """The value in the place of one kind of text."""
    return changed(base().data, lambda place, text: value if place == where else text)


SCRIPTED = (
    *("environment.torch", "5.file", "5.function", "enums.dtypes.6", "enums.device_types.0", "4.op", "4.key"),
    *("4.python_kernel", "enums.keys[][]", "8.symbol"),
)
"""The places of what a script of `tracer replay` is made of"""
