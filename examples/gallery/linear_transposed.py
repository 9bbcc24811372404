"""Is nn.Linear slower than a matmul with the transposed weight? Its weight lies (outputs, inputs).

    python examples/gallery/linear_transposed.py
    tracer record examples/gallery/linear_transposed.py

No. Look at `aten::t` below `aten::linear`: it takes a transposed view, which copies nothing, and the
product reads either order. The bias comes with the product in one `aten::addmm` (on a CPU it is copied
into the result first, and the product added to it); written out, it is one more op, which reads and writes
the result again. `linear` and `x @ weight.t()` run the same hops below `aten::matmul`: if their times in
the output differ, the cause is the order of the rows and the noise of the measurement.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import linear

ROWS, INPUTS, OUTPUTS = 256, 512, 512
REPEATS = 30
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def microseconds(run: Callable[[], Tensor]) -> float:
    """The median of one call, the GPU's work included."""
    taken = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        run()
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - began)
    return sorted(taken)[REPEATS // 2] * 1e6


@torch.no_grad()
def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # steadier times
    x = torch.randn(ROWS, INPUTS).to(DEVICE)
    weight, bias = torch.randn(OUTPUTS, INPUTS).to(DEVICE), torch.randn(OUTPUTS).to(DEVICE)
    turned = weight.t().contiguous()
    view = weight.t()
    print(f"the transposed weight is a view: {view.data_ptr() == weight.data_ptr()}, stride {view.stride()}")

    ways: dict[str, Callable[[], Tensor]] = {
        "linear(x, weight)": lambda: linear(x, weight),
        "x @ weight.t()": lambda: torch.matmul(x, weight.t()),
        "x @ a copy, transposed before": lambda: torch.matmul(x, turned),
        "linear(x, weight, bias)": lambda: linear(x, weight, bias),
        "x @ weight.t() + bias": lambda: torch.matmul(x, weight.t()) + bias,
    }
    expected = linear(x, weight)
    for name, run in ways.items():
        same = torch.allclose(run() - (bias if "bias" in name else 0), expected, atol=1e-3)
        print(f"{name:<30} {microseconds(run):>8,.0f} us, the same: {same}")


if __name__ == "__main__":
    main()
