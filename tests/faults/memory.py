"""Address space, mappings and threads that run out."""

from __future__ import annotations

from case import Case, assert_honest
from rows import row

# Reached for a moment by one more thread; the memory is free again later.
LIMIT = """
import resource, threading, torch
torch.set_num_threads(1)
x = torch.ones(2)
torch.neg(x)
threading.stack_size(128 << 10)
def used(): return int(open('/proc/self/statm').read().split()[0]) * 4096
ran, go = [0] * 6, threading.Event()
def work(number):
    go.wait()
    for _ in range(3000): torch.neg(x); ran[number] += 1
threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
for thread in threads: thread.start()
soft, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (used() + ROOM, hard)); go.set()
for thread in threads: thread.join()
resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
for _ in range(20000): torch.neg(x)
print(sum(ran) + 20001)
"""
# As it is when the interpreter ends: what tracer does then has no more either.
TO_THE_END = """
import resource, torch
torch.set_num_threads(1)
x = torch.ones(2)
torch.neg(x)
used = int(open('/proc/self/statm').read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, resource.RLIM_INFINITY))
for _ in range(20000): torch.neg(x)
print(20001, flush=True)
"""
# The most mappings that a process may have: reached, and given back but for 12. The script's threads have
# theirs before: where glibc finds no memory for a thread's variables it ends the process.
MAPPINGS = """
import ctypes, threading, torch
x = torch.ones(1)
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
number = ctypes.c_int
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, number, number, number, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
ran, threads, taken = [0] * 8, [], []
ready, go = threading.Barrier(9), threading.Event()
def work(number):
    ready.wait()
    go.wait()
    for _ in range(6000): torch.neg(x); ran[number] += 1
threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads: thread.start()
ready.wait()
while (place := libc.mmap(None, 4096, 1 + 2 * (len(taken) % 2), 0x22, -1, 0)) not in (None, 2**64 - 1):
    taken.append(place)
for _ in range(12): libc.munmap(taken.pop(), 4096)
go.set()
for thread in threads: thread.join()
for place in taken: libc.munmap(place, 4096)
for _ in range(20000): torch.neg(x)
print(sum(ran) + 20000)
"""
THREADS = """
import threading, torch
STACK
x = torch.ones(2)
def work():
    for _ in range(20): torch.neg(x)
for _ in range(TURNS):
    threads = [threading.Thread(target=work) for _ in range(100)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
print(20 * 100 * TURNS)
"""
MANY = THREADS.replace("STACK", "").replace("TURNS", "10")
SMALL = THREADS.replace("STACK", "threading.stack_size(64 << 10)").replace("TURNS", "2")
VARIANTS = {
    "address space: nothing more": LIMIT.replace("ROOM", "0"),
    "address space: 3 MiB more": LIMIT.replace("ROOM", "(3 << 20)"),
    "address space: 12 MiB more": LIMIT.replace("ROOM", "(12 << 20)"),
    **{
        f"address space: {room} KiB more, to the end": TO_THE_END.replace("ROOM", f"({room} << 10)")
        for room in (512, 1024, 2048)
    },
    "mappings": MAPPINGS,
    "1,000 threads": MANY,
    "threads with small stacks": SMALL,
}


@row(
    "address space, mappings, stacks",
    "The script runs; calls that are not recorded are counted, and said.",
    VARIANTS,
)
def scarce(case: Case, script: str) -> None:
    """The script prints how many calls it made."""
    case.write(script)
    traced = case.record("-o", "run.trace", "script.py")
    assert traced.status == 0, traced.err
    assert_honest(case.trace(), int(traced.out), traced.said)
