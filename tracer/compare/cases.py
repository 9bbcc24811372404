"""What `tracer compare mm|gru|cat` compares: shapes, types, layouts and modes, as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

CUDA, CPU = "cuda", "cpu"
STRICT, TF32 = "strict", "TF32"
TRANSPOSED, STRIDED = "weight transposed", "strided rows"

SHORT = {"float32": "fp32", "float64": "fp64", "bfloat16": "bf16", "float16": "fp16"}

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """One call, or a call with its backward pass.

    family    mm, gru or cat: the name that it is chosen by
    op        mm | addmm | gru | cat: which function of torch is called
    shapes    of the operands; of gru (T, B, I) and (H,); of addmm without the bias, which is (N,)
    dtype     of the operands, as torch names it
    mode      how fp32 products are computed on a GPU: strict | TF32
    layout    "weight transposed": the second matrix is the view that a Linear layer gives;
              "strided rows": rows of wider matrices
    dim       that cat goes along
    devices   kinds of device that the case is for: the CPU has smaller ones
    """

    family: str
    op: str
    shapes: tuple[Shape, ...]
    dtype: str = "float32"
    mode: str = ""
    layout: str = ""
    dim: int = 0
    layers: int = 1
    bidirectional: bool = False
    backward: bool = False
    devices: tuple[str, ...] = (CUDA,)

    @property
    def name(self) -> str:
        """`mm fp32 strict 8x1536 1536x5893, weight transposed`"""
        words = [self.op, SHORT.get(self.dtype, self.dtype), self.mode, self._operands()]
        notes = [
            self.layout,
            f"dim {self.dim}" if self.op == "cat" else "",
            f"{self.layers} layers" if self.layers > 1 else "",
            "bidirectional" if self.bidirectional else "",
            "forward and backward" if self.backward else "",
        ]
        return ", ".join(filter(None, [" ".join(filter(None, words)), *notes]))

    def _operands(self) -> str:
        if self.op == "gru":
            (steps, batch, size), (hidden,) = self.shapes
            return f"T{steps} B{batch} I{size} H{hidden}"
        if self.op != "cat":
            return " ".join(map(_extent, self.shapes))
        runs = [(_extent(shape), len(list(run))) for shape, run in groupby(self.shapes)]
        return " ".join(text if count == 1 else f"{count} x {text}" for text, count in runs)


def cases_of(family: str, device: str, patterns: Sequence[str] = ()) -> list[Case]:
    """The cases of a family for a kind of device, in order; those whose name has one of the patterns."""
    of_family = [case for case in CASES if case.family == family and device in case.devices]
    wanted = [pattern.casefold() for pattern in patterns]
    return [c for c in of_family if not wanted or any(word in c.name.casefold() for word in wanted)]


def _extent(shape: Shape) -> str:
    return "x".join(map(str, shape))


def _products(
    rows: Sequence[int], inner: int, columns: int, dtype: str, mode: str = "", op: str = "mm", **more: object
) -> list[Case]:
    return [
        Case("mm", op, ((m, inner), (inner, columns)), dtype, mode, **more)  # type: ignore[arg-type]
        for m in rows
    ]


def _gru(length: int, batch: int, size: int, hidden: int, dtype: str = "float32", **more: object) -> Case:
    return Case("gru", "gru", ((length, batch, size), (hidden,)), dtype, **more)  # type: ignore[arg-type]


def _cat(shapes: Sequence[Shape], dim: int, dtype: str = "float32", **more: object) -> Case:
    return Case("cat", "cat", tuple(shapes), dtype, dim=dim, **more)  # type: ignore[arg-type]


_ON_CPU = (CPU,)
_ON_BOTH = (CUDA, CPU)

CASES: tuple[Case, ...] = (
    # the vocabulary's Linear of a translator: few rows, an odd number of columns
    *_products((1, 8, 64, 128), 1536, 5893, "float32", STRICT, layout=TRANSPOSED),
    *_products((1, 8, 64, 128), 1536, 5893, "bfloat16", layout=TRANSPOSED),
    *_products((1, 128), 1792, 7853, "float32", STRICT, op="addmm", layout=TRANSPOSED),
    *_products((1, 128), 1792, 7853, "bfloat16", op="addmm", layout=TRANSPOSED),
    *_products((1, 16), 4096, 4096, "float32", STRICT),
    *_products((1, 16), 4096, 4096, "bfloat16"),
    *_products((8,), 1536, 5893, "float32", TF32, layout=TRANSPOSED),
    *_products((8,), 1536, 5893, "float16", layout=TRANSPOSED),
    # attention's last layer: one column
    *_products((3200,), 512, 1, "float32", STRICT, layout=TRANSPOSED),
    *_products((512,), 512, 512, "float32", STRICT),
    *_products((4096,), 4096, 4096, "float32", STRICT),
    *_products((4096,), 4096, 4096, "float32", TF32),
    *_products((4096,), 4096, 4096, "bfloat16"),
    *_products((64,), 64, 64, "float32", devices=_ON_CPU),
    *_products((1, 8, 64), 256, 500, "float32", layout=TRANSPOSED, devices=_ON_CPU),
    *_products((128,), 256, 512, "float32", devices=_ON_CPU),
    *_products((320,), 256, 1, "float32", layout=TRANSPOSED, devices=_ON_CPU),
    *_products((64,), 64, 64, "float64", devices=_ON_CPU),
    *_products((64,), 64, 64, "bfloat16", devices=_ON_CPU),
    *_products((8,), 256, 500, "float32", op="addmm", layout=TRANSPOSED, devices=_ON_CPU),
    _gru(32, 64, 256, 512, mode=TF32),
    _gru(32, 64, 256, 512, mode=STRICT),
    _gru(32, 64, 256, 512, "bfloat16"),
    _gru(32, 64, 256, 512, "float16"),
    _gru(32, 32, 256, 256, mode=TF32),
    _gru(50, 128, 512, 1024, mode=TF32),
    _gru(50, 128, 512, 1024, "bfloat16"),
    # one step of a decoder
    _gru(1, 1, 1536, 512, mode=TF32),
    _gru(1, 64, 1536, 512, mode=TF32),
    _gru(1, 128, 1536, 512, mode=TF32),
    _gru(1, 64, 1536, 512, "bfloat16"),
    _gru(32, 64, 256, 512, mode=TF32, layers=2, bidirectional=True),
    _gru(32, 64, 256, 512, mode=TF32, backward=True),
    _gru(32, 64, 256, 512, mode=STRICT, backward=True),
    _gru(32, 64, 256, 512, "bfloat16", backward=True),
    _gru(1, 64, 1536, 512, mode=TF32, backward=True),
    _gru(8, 4, 32, 64, devices=_ON_CPU),
    _gru(1, 16, 64, 128, devices=_ON_CPU),
    _gru(8, 4, 32, 64, devices=_ON_CPU, backward=True),
    *(_cat([(64, 512)] * count, 1, devices=_ON_BOTH) for count in (2, 3, 4)),
    _cat([(64, 512), (64, 1024)], 1, devices=_ON_BOTH),
    _cat([(64, 4097), (64, 4097)], 1, "bfloat16", devices=_ON_CPU),
    _cat([(512, 512), (512, 512)], 0, devices=_ON_CPU),
    _cat([(64, 256)] * 8, 1, layout=STRIDED, devices=_ON_BOTH),
    _cat([(4096, 4096)] * 2, 0),
    _cat([(4096, 4096)] * 2, 1),
    _cat([(4096, 4097)] * 2, 1, "bfloat16"),
    _cat([(4096, 2048)] * 8, 1, layout=STRIDED),
    _cat([(8, 16, 32, 32, 64)] * 4, 2),
    _cat([(16384, 8192)] * 4, 0),
)
FAMILIES = tuple(dict.fromkeys(case.family for case in CASES))
