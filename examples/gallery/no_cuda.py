"""What happens without CUDA: each way to ask for a GPU, what it answers, and what to write instead.

    python examples/gallery/no_cuda.py
    tracer record examples/gallery/no_cuda.py

Look at what is missing: `x.to("cuda")` and `device="cuda"` in Python leave no hop at all, because Python
refuses them before the dispatcher sees an op. Called as an operator, the same request reaches the key
BackendSelect, which finds no kernel for the key CUDA. This report is of a torch that was built without CUDA.
The script hides a GPU if there is one; a torch with CUDA then refuses with other messages.
"""

from __future__ import annotations

import os
from collections.abc import Callable

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # read when torch first looks for a GPU

import torch


def attempt(what: str, run: Callable[[], object]) -> None:
    try:
        print(f"{what}: {run()}")
    except (AssertionError, RuntimeError) as error:  # NotImplementedError is a RuntimeError
        said = str(error).splitlines()[0].split(". ")[0]
        print(f"{what}: {type(error).__name__}: {said}")


def main() -> None:
    attempt("torch.cuda.is_available()", torch.cuda.is_available)
    attempt("torch.cuda.device_count()", torch.cuda.device_count)
    attempt("torch.cuda.memory_allocated()", torch.cuda.memory_allocated)
    attempt("torch.cuda.get_device_name()", torch.cuda.get_device_name)

    x = torch.ones(2, 2)
    attempt('x.to("cuda")', lambda: x.to("cuda"))
    attempt('torch.ones(2, device="cuda")', lambda: torch.ones(2, device="cuda"))
    attempt("the operator aten::empty", lambda: torch.ops.aten.empty.memory_format([2], device="cuda"))

    device = "cuda" if torch.cuda.is_available() else "cpu"
    on_device = x.to(device)
    print(f"asked first, the same program runs on {device}: {torch.matmul(on_device, on_device).tolist()}")


if __name__ == "__main__":
    main()
