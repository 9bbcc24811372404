"""The work of library calls, from their recorded arguments."""

from __future__ import annotations

import re
from collections.abc import Callable

from tracer.analysis.dtypes import item_bytes, multiply_add
from tracer.analysis.work import Work
from tracer.trace.bytes.damage import DamagedError, whole


def gemm_work(arguments: dict[str, str], name: str) -> Work | None:
    """From the arguments of a GEMM call of cuBLAS (m, n, k, batchCount, Atype); None of other calls."""
    return _of_arguments(_gemm, arguments, name)


def rnn_work(arguments: dict[str, str], name: str) -> Work | None:
    """From the arguments of a cuDNN RNN call; each backward call does the work of the forward call."""
    return _of_arguments(_rnn, arguments, name)


def _of_arguments(
    rule: Callable[[dict[str, str], str], Work | None], arguments: dict[str, str], name: str
) -> Work | None:
    try:
        return whole(rule, arguments, name)
    except DamagedError:
        return None


def _gemm(arguments: dict[str, str], name: str) -> Work | None:
    m, n, k = (int(arguments[letter]) for letter in "mnk")
    count = max(int(arguments.get("batchCount", 1)), 1)
    letter = re.match(r"cublas([SDHCZ])", name)
    number = re.search(r"(?:^|_)([RC]_.*)", arguments.get("Atype", ""))
    dtype = _CUDA_TYPES.get(number[1] if number else "") or _LETTERS.get(letter[1] if letter else "", "")
    if not dtype:
        return None
    size = item_bytes(dtype)
    return Work(
        "GEMM",
        count * (m * k + k * n + m * n) * size,
        count * m * n * k * multiply_add(dtype),
        dtype,
        (count, m, n),
        matrix=True,
    )


def _rnn(arguments: dict[str, str], name: str) -> Work | None:
    layers, size, hidden, length, batch = (
        int(arguments[word]) for word in ("layers", "input", "hidden", "sequence", "batch")
    )
    gates = {"LSTM": 4, "GRU": 3}.get(arguments.get("mode", ""), 1)
    directions = 2 if arguments.get("direction") == "BIDIRECTIONAL" else 1
    dtype = {"HALF": "float16", "BFLOAT16": "bfloat16", "DOUBLE": "float64"}.get(
        arguments.get("type", ""), "float32"
    )
    inputs = size + (layers - 1) * hidden * directions  # of all layers
    weights = directions * gates * hidden * (inputs + layers * hidden) if layers > 0 else 0
    state = length * batch * (size + hidden * directions)
    note = "" if name == "cudnnRNNForward" else "one of the two backward passes"
    return Work(
        "RNN",
        (weights + state) * item_bytes(dtype),
        2 * length * batch * weights,
        dtype,
        (length, batch, hidden * directions),
        matrix=True,
        note=note,
    )


_LETTERS = {"S": "float32", "D": "float64", "H": "float16", "C": "complex64", "Z": "complex128"}
_CUDA_TYPES = {
    "R_32F": "float32",
    "R_64F": "float64",
    "R_16F": "float16",
    "R_16BF": "bfloat16",
    "R_8F_E4M3": "float8_e4m3fn",
    "R_8F_E5M2": "float8_e5m2",
    "R_8I": "int8",
    "C_32F": "complex64",
    "C_64F": "complex128",
}
