"""What the loggers of cuBLAS, cuBLASLt and cuDNN cost a call, beside a recording of CUDA. Needs a GPU.

    python benchmarks/library_loggers.py
    python benchmarks/library_loggers.py --calls 2000 --rounds 15

The libraries can call back with a text for each of their functions that is called; tracer reads the
arguments itself, at the libraries' PLT entries. Timed are, for each op, bare calls in turns with calls where
the library's logger calls a C function that only counts; then calls that tracer records with CUDA: hops, API
calls, kernels and library calls, all of it. (What CUPTI costs stays in part after a recording, so that comes
last.) Times are host time of one call, medians over the rounds; the GPU is waited for after each round.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

import tracer

COUNTER = """
static unsigned long calls;
unsigned long count_of_calls(void) { return calls; }
void on_cublas(const char* text) { (void)text; ++calls; }
void on_cublaslt(int level, const char* function, const char* text) {
  (void)level; (void)function; (void)text; ++calls;
}
void on_cudnn(int severity, void* own, const void* debug, const char* text) {
  (void)severity; (void)own; (void)debug; (void)text; ++calls;
}
"""
API_TRACE = 5  # level of cuBLASLt
INFO = 1 << 3  # mask of cuDNN


def loaded(name: str) -> ctypes.CDLL:
    """The library that torch has loaded, whatever its version."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.rpartition(" ")[2]
        if Path(path).name.startswith(f"{name}.so"):
            return ctypes.CDLL(path)
    sys.exit(f"library_loggers: torch has not loaded {name}")


def counter(folder: str) -> ctypes.CDLL:
    source, library = Path(folder, "counter.c"), Path(folder, "counter.so")
    source.write_text(COUNTER)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    counting = ctypes.CDLL(str(library))
    counting.count_of_calls.restype = ctypes.c_ulong
    return counting


@contextmanager
def logged(counting: ctypes.CDLL) -> Iterator[None]:
    """The loggers of the three libraries call the counter."""
    cublas, lt, cudnn = loaded("libcublas"), loaded("libcublasLt"), loaded("libcudnn")
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    lt.cublasLtLoggerSetFile(ctypes.c_void_p(libc.fopen(b"/dev/null", b"w")))  # it writes besides
    cublas.cublasSetLoggerCallback(counting.on_cublas)
    cublas.cublasLoggerConfigure(1, 0, 0, None)
    lt.cublasLtLoggerSetCallback(counting.on_cublaslt)
    lt.cublasLtLoggerSetLevel(API_TRACE)
    cudnn.cudnnSetCallback(INFO, None, counting.on_cudnn)
    try:
        yield
    finally:
        cudnn.cudnnSetCallback(0, None, None)
        lt.cublasLtLoggerSetLevel(0)
        lt.cublasLtLoggerSetCallback(None)
        cublas.cublasLoggerConfigure(0, 0, 0, None)
        cublas.cublasSetLoggerCallback(None)


def ops() -> dict[str, Callable[[], object]]:
    x = torch.randn(64, 64, device="cuda")
    bias = torch.randn(64, device="cuda")
    gru = nn.GRU(64, 64).cuda()
    sequence = torch.randn(8, 16, 64, device="cuda")
    return {
        "mm (cublasSgemm_v2)": lambda: torch.mm(x, x),
        "linear (cublasLtMatmul)": lambda: nn.functional.linear(x, x, bias),
        "GRU, 8 time steps (cudnnRNNForward)": lambda: gru(sequence),
    }


def host_us(call: Callable[[], object], calls: int) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(calls):
        call()
    taken = time.perf_counter() - began
    torch.cuda.synchronize()
    return taken / calls * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=300, help="of each op in a round (300)")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("library_loggers: needs a CUDA GPU, and there is none here")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; host time of a call in microseconds")
    print("| op | bare | logged | recorded | logger adds | recording adds | messages a call |")
    print("|---|---|---|---|---|---|---|")
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        counting = counter(folder)
        bare, logs, messages = {}, {}, {}
        for name, call in ops().items():
            host_us(call, 20)
            times: list[tuple[float, float]] = []
            before = counting.count_of_calls()
            for _ in range(options.rounds):
                plain = host_us(call, options.calls)
                with logged(counting):
                    times.append((plain, host_us(call, options.calls)))
            messages[name] = (counting.count_of_calls() - before) / options.calls / options.rounds
            bare[name], logs[name] = map(statistics.median, zip(*times, strict=True))
        for name, call in ops().items():
            with tracer.record(Path(folder) / "loggers.trace", cuda="on", force=True):
                host_us(call, 20)
                taken = statistics.median(host_us(call, options.calls) for _ in range(options.rounds))
            plain, logged_us = bare[name], logs[name]
            print(
                f"| {name} | {plain:.1f} | {logged_us:.1f} | {taken:.1f} | {logged_us - plain:+.1f} "
                f"| {taken - plain:+.1f} | {messages[name]:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
