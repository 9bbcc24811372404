"""The calls that `tracer compare --tune` measures, and the sizes for which each of them decides, as data.

`tracer compare --tune` measures them on the user's GPU, benchmarks/override_tuning.py and gru_tuning.py for
the tables that tracer is built with.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tracer.compare.cases import STRICT, TF32, TRANSPOSED, Case, Shape
from tracer.overrides.measured import FIELDS

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_ROOT = math.sqrt(2)

Range = tuple[int, int]
"""Both ends included"""


@dataclass(frozen=True)
class TuningCase:
    """A call, or for GRU of several steps the call and the call with its backward pass: both must be faster.

    name     as in the comments of the built-in tables, e.g. `mm 8x1536x5893 NT float32`
    cases    what is measured
    sizes    the calls that it decides for: the fields of a row of the table (overrides.measured.FIELDS)
    """

    name: str
    cases: tuple[Case, ...]
    sizes: dict[str, Any]

    @property
    def family(self) -> str:
        return self.cases[0].family


def tuning_cases(family: str, patterns: Sequence[str] = ()) -> list[TuningCase]:
    """Those of a family, in order; only those whose name contains one of the patterns."""
    wanted = [pattern.casefold() for pattern in patterns]
    found = {"mm": _products, "gru": _grus, "cat": _cats}[family]()
    return [case for case in found if not wanted or any(word in case.name.casefold() for word in wanted)]


def precision_of(case: Case) -> str:
    """`float32`, `tf32`, `bfloat16` or `float16`."""
    return "tf32" if case.mode == TF32 else case.dtype


def around(size: int) -> Range:
    """A measured size decides for those within a factor of 1.41."""
    return max(1, math.ceil(size / _ROOT)), math.floor(size * _ROOT)


def _products() -> Iterator[TuningCase]:
    f32, bf16, f16 = "float32", "bfloat16", "float16"
    for m in (1, 2, 4, 8, 16, 32, 64, 128):
        for dtype in (f32, bf16):
            yield _product(m, 1536, 5893, TRANSPOSED, dtype)  # a vocabulary
            yield _product(m, 4096, 4096, TRANSPOSED, dtype)
            yield _product(m, 5893, 1536, "", dtype)  # its gradient by the input
            if m <= 16 and not (m == 8 and dtype == f32):
                yield _product(m, 4096, 4096, "", dtype)
    for m in (8, 32, 128):
        yield _product(m, 1536, 5893, TRANSPOSED, f32, TF32)
        yield _product(m, 1536, 5893, TRANSPOSED, f16)
        yield _product(m, 512, 1536, TRANSPOSED, f32)
        yield _product(m, 4096, 4096, "", f32)
    for m in (1, 64, 128):
        for dtype in (f32, bf16):
            yield _product(m, 1792, 7853, TRANSPOSED, dtype, op="addmm")
    for dtype in (f32, bf16):
        yield _product(3200, 512, 1, TRANSPOSED, dtype)  # a score for each position


def _product(
    m: int, k: int, n: int, layout: str, dtype: str, mode: str = STRICT, op: str = "mm"
) -> TuningCase:
    mode = mode if dtype == "float32" else ""
    case = Case("mm", op, ((m, k), (k, n)), dtype, mode, layout)
    columns, rows = sorted((m, n))
    sizes = {
        "element": dtype,
        "tf32": mode == TF32,
        # The longer side is the weight; the first matrix has its inner stride 1, the second if transposed.
        "inner_major": layout == TRANSPOSED or m > n,
        "columns": (columns // 2 + 1, columns),
        "rows": around(rows),
        "inner": around(k),
    }
    letters = "NT" if layout == TRANSPOSED else "NN"
    return TuningCase(f"{op} {m}x{k}x{n} {letters} {precision_of(case)}", (case,), sizes)


def _grus() -> Iterator[TuningCase]:
    shapes = [
        (32, 64, 256, 512),
        *((1, batch, 1536, 512) for batch in (1, 2, 4, 8, 16, 32, 64, 128)),
        (32, 128, 256, 512),
        (32, 16, 256, 512),
        (32, 32, 256, 256),
        (32, 1, 256, 512),
        (50, 128, 512, 1024),
    ]
    for shape in shapes:
        for dtype, mode in (("float32", TF32), ("float32", STRICT), ("bfloat16", ""), ("float16", "")):
            # A single row is multiplied exactly even where TF32 is allowed, as in the strict case.
            if not (mode == TF32 and shape[0] * shape[1] == 1):
                yield _gru(*shape, dtype, mode)


def _gru(steps: int, batch: int, size: int, hidden: int, dtype: str, mode: str) -> TuningCase:
    passes = (False, True) if steps > 1 else (False,)
    shapes = ((steps, batch, size), (hidden,))
    cases = tuple(Case("gru", "gru", shapes, dtype, mode, backward=backward) for backward in passes)
    precision = precision_of(cases[0])
    sizes = {
        "precision": precision,
        "steps": around(steps),
        "batch": around(batch),
        "input": around(size),
        "hidden": around(hidden),
    }
    return TuningCase(f"gru T{steps} B{batch} I{size} H{hidden} {precision}", cases, sizes)


def _cats() -> Iterator[TuningCase]:
    f32, bf16 = "float32", "bfloat16"
    for count in (2, 3, 4):
        yield _cat([(64, 512)] * count, 1, f32)
    yield _cat([(64, 512)] * 2, 0, f32)
    yield _cat([(64, 512), (64, 1024)], 1, f32)
    yield _cat([(4096, 4096)] * 2, 0, f32)
    yield _cat([(4096, 4096)] * 2, 1, f32)
    yield _cat([(16384, 8192)] * 4, 1, f32)
    yield _cat([(8192, 4097)] * 2, 1, bf16)
    yield _cat([(20000, 30108), (20000, 624), (20000, 772)], 1, f32)
    yield _cat([(64, 32, 56, 56)] * 6, 1, bf16)
    yield _cat([(1 << 22, 1)] * 4, 1, f32)
    yield _cat([(16, 100, 40)] * 30, 2, f32)


def _cat(shapes: Sequence[Shape], dim: int, dtype: str) -> TuningCase:
    case = Case("cat", "cat", tuple(shapes), dtype, dim=dim)
    runs = [math.prod(shape[dim:]) * _BYTES[dtype] for shape in shapes]
    sizes = {
        "tensors": around(len(shapes)),
        "bytes": around(sum(math.prod(shape) for shape in shapes) * _BYTES[dtype]),
        "aligned": all(run % 16 == 0 for run in runs),
    }
    named = " ".join("x".join(map(str, shape)) for shape in shapes[:3])
    more = f" and {len(shapes) - 3} more" if len(shapes) > 3 else ""
    return TuningCase(f"cat dim {dim} {named}{more} {dtype}", (case,), sizes)


def row_of(case: TuningCase) -> tuple[Any, ...]:
    """Its sizes in the order of the fields."""
    return tuple(case.sizes[field] for field in FIELDS[case.family])
