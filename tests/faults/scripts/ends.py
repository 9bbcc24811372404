"""Ways in which a script ends."""

import atexit
import ctypes
import os
import signal
import sys
import threading
import time

import torch
from common import main, operator, work, x


def in_thread(act):
    thread = threading.Thread(target=act)
    thread.start()
    return thread


def abort_in_a_kernel():
    op = operator(lambda _: ctypes.CDLL(None).abort())
    work()
    op(x)


def segmentation_fault_in_a_thread():
    in_thread(lambda: (work(), ctypes.string_at(0)))
    work(10**7)


def os_exit():
    work()
    os._exit(3)


def os_exit_in_a_thread():
    in_thread(lambda: (work(), os._exit(4)))
    time.sleep(60)


def sys_exit():
    work()
    sys.exit("bye")


def sys_exit_in_a_thread():
    in_thread(lambda: (work(), sys.exit(4))).join()
    print("ok")


class Raises(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return value * 2

    @staticmethod
    def backward(ctx, grad):
        raise ValueError("no")


def exception_in_backward():
    y = torch.ones(2, requires_grad=True)
    try:
        Raises.apply(y).sum().backward()
    except ValueError as error:
        print(error)
    Raises.apply(y).sum().backward()


def too_much_recursion():
    def deeper(depth):
        return deeper(depth + 1) + torch.neg(x)

    try:
        deeper(0)
    except RecursionError:
        print("caught")
    work()


def native_stack_overflows():
    sys.setrecursionlimit(10**7)
    op = operator(lambda value: torch.ops.faults.op(value))
    op(x)


def _signalled(number):
    work()
    os.kill(os.getpid(), number)
    time.sleep(60)


def sigterm():
    _signalled(signal.SIGTERM)


def sigterm_with_a_handler():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
    _signalled(signal.SIGTERM)


def sighup():
    _signalled(signal.SIGHUP)


def sigint():
    _signalled(signal.SIGINT)


def sigbus_and_sigsegv_with_handlers():
    for number in (signal.SIGBUS, signal.SIGSEGV):
        signal.signal(number, lambda number, _: print("got", number))
        os.kill(os.getpid(), number)
    work()


def sigpipe():
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    work()
    read, write = os.pipe()
    os.close(read)
    os.write(write, b"x")


def signals_of_a_timer():
    seen = []
    signal.signal(signal.SIGALRM, lambda *_: seen.append(torch.neg(x)))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    while len(seen) < 6:
        work(1000)
    signal.setitimer(signal.ITIMER_REAL, 0)
    print("ok")


def thread_outlives_the_main_one():
    in_thread(lambda: (time.sleep(0.5), work(), print("late")))
    print("main")


def daemon_thread():
    threading.Thread(target=work, args=(10**9,), daemon=True).start()
    time.sleep(0.3)
    print("main")


class Deleted:
    def __del__(self):
        torch.neg(torch.ones(2))
        print("deleted")


def ops_at_exit():
    global kept
    kept = Deleted()
    atexit.register(lambda: (work(), print("at exit")))
    work()


def exec_of_itself():
    print("exec" if "again" in sys.argv else "first", flush=True)
    if "again" not in sys.argv:
        os.execv(sys.executable, [sys.executable, *sys.argv, "again"])
    work()


if __name__ == "__main__":
    main(globals())
