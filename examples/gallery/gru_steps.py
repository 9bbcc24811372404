"""What one nn.GRU is made of: the library's against the formulas by hand, and how the ops grow with time.

    python examples/gallery/gru_steps.py
    tracer record examples/gallery/gru_steps.py

Look below `aten::gru.input`: on a CPU it multiplies the inputs of all time steps at once and then runs a
dozen small ops for each step; so there are 17 calls of `aten::linear`, one for all inputs and 16 for the
state. On a GPU it is one call of cuDNN. By hand the inputs are multiplied anew at each step, as the state is:
96 calls of each, in 6 runs of 16 steps.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn

TIME, BATCH, INPUT, HIDDEN = 16, 8, 32, 64
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def by_hand(gru: nn.GRU, x: Tensor) -> Tensor:
    """The GRU as cuDNN has it, the reset gate after the product; `x` is (time, batch, input)."""
    h = x.new_zeros(x.shape[1], HIDDEN)
    outputs = []
    for step in x:
        of_input = nn.functional.linear(step, gru.weight_ih_l0, gru.bias_ih_l0)
        of_state = nn.functional.linear(h, gru.weight_hh_l0, gru.bias_hh_l0)
        reset_x, update_x, new_x = of_input.chunk(3, dim=1)
        reset_h, update_h, new_h = of_state.chunk(3, dim=1)
        update = torch.sigmoid(update_x + update_h)
        new = torch.tanh(new_x + torch.sigmoid(reset_x + reset_h) * new_h)
        h = (1 - update) * new + update * h
        outputs.append(h)
    return torch.stack(outputs)


def milliseconds(run) -> float:  # type: ignore[no-untyped-def]
    taken = []
    for _ in range(5):
        began = time.perf_counter()
        run()
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - began)
    return min(taken) * 1e3


@torch.no_grad()
def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = False  # cuDNN's default, less exact than the products by hand
    gru = nn.GRU(INPUT, HIDDEN).to(DEVICE)
    x = torch.randn(TIME, BATCH, INPUT).to(DEVICE)
    output, last = gru(x)
    print(
        f"by hand the same, {torch.allclose(by_hand(gru, x), output, atol=1e-5)}; last is the last output, "
        f"{torch.equal(last[0], output[-1])}"
    )
    print(f"nn.GRU                          {milliseconds(lambda: gru(x)):.2f} ms")
    print(f"nn.GRU, half of the time steps  {milliseconds(lambda: gru(x[: TIME // 2])):.2f} ms")
    print(f"by hand                         {milliseconds(lambda: by_hand(gru, x)):.2f} ms")


if __name__ == "__main__":
    main()
