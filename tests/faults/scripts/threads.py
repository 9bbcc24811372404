"""Threads run ops and say in PROGRESS how far they are: threads.py PROGRESS CALLS [fork].

PROGRESS is memory of 8-byte words. Word 0 is the phase that was reached, words 1 to 4 say when (nanoseconds):
1 Python runs, 2 torch is imported and the recording has begun, 3 all threads run, 4 all calls were made.
From word 8 on each thread has a line of 8: its id, the calls of neg that it began, those that it ended.
"""

import mmap
import os
import sys
import threading
import time

PYTHON, ARMED, RUNNING, ENDED = 1, 2, 3, 4
THREADS = 3
words = memoryview(mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 4096)).cast("Q")
limit = int(sys.argv[2])


def reached(phase):
    words[phase] = time.monotonic_ns()
    words[0] = phase


reached(PYTHON)
import torch  # noqa: E402

reached(ARMED)


def work(line, calls):
    shapes = [torch.ones(size) for size in range(1, 40)]
    rows = torch.ones(4, 4, requires_grad=True)
    words[8 * line] = threading.get_native_id()
    for number in range(calls):
        words[8 * line + 1] = number + 1
        torch.neg(shapes[number % 39])
        words[8 * line + 2] = number + 1
        if number % 50 == 0:
            (rows @ rows).sum().backward()


children = []
if "fork" in sys.argv:
    for line in range(THREADS + 1, THREADS + 4):
        child = os.fork()
        if child == 0:
            work(line, limit)
            os._exit(0)
        children.append(child)
threads = [threading.Thread(target=work, args=(line + 1, limit)) for line in range(THREADS)]
for thread in threads:
    thread.start()
while not all(words[8 * (line + 1) + 1] for line in range(THREADS)):
    time.sleep(0.001)
reached(RUNNING)
for thread in threads:
    thread.join()
for child in children:
    os.waitpid(child, 0)
reached(ENDED)
