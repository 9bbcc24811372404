"""What scripts do that a recorder could disturb."""

import importlib
import os
import subprocess
import sys
import threading

import torch
from common import main, operator, work, x
from torch.func import functionalize, grad, jvp, vmap
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


def changes_its_folder():
    os.chdir("/")
    work(100_000)
    print("ok")


def changes_its_root():
    os.makedirs("jail", exist_ok=True)
    os.chroot("jail")
    changes_its_folder()


def changes_its_user():
    os.setgid(65534)
    os.setuid(65534)
    work(100_000)
    print("ok")


def starts_programs():
    for _ in range(10):
        subprocess.run(["true"])
    work()
    print("ok")


def posix_spawn():
    command = [sys.executable, "-c", "import torch; print(torch.ones(2))"]
    child = os.posix_spawn(sys.executable, command, os.environ)
    print(os.waitpid(child, 0)[1])


class Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        return function(*arguments, **(named or {}))


class Function(TorchFunctionMode):
    def __torch_function__(self, function, types, arguments=(), named=None):
        return function(*arguments, **(named or {}))


def modes():
    with Dispatch(), Function():
        y = torch.ones(3, requires_grad=True)
        (y * 2).sum().backward()
        print(y.grad)


def nested_transforms():
    def f(value):
        return (value.sin() * value).sum()

    print(vmap(vmap(grad(f)))(torch.ones(2, 3, 4)).sum())
    print(jvp(grad(f), (torch.ones(3),), (torch.ones(3),)))
    print(functionalize(lambda value: value.add_(1))(torch.ones(2)))


def registers_kernels_in_a_thread():
    ended = threading.Event()

    def register():
        while not ended.is_set():
            library = torch.library.Library("aten", "IMPL")
            library.impl("cosh", lambda value: value, "CPU")
            library._destroy()

    thread = threading.Thread(target=register)
    thread.start()
    work(50_000)
    ended.set()
    thread.join()
    print("ok")


def operator_that_raises():
    def kernel(_):
        raise KeyError("no")

    op = operator(kernel)
    for _ in range(3):
        try:
            op(x)
        except KeyError as error:
            print(repr(error))
    work()


def module_loaded_again():
    importlib.reload(torch.functional)
    work()
    print("ok")


def stderr_closed_by_python():
    sys.stderr.close()
    work()
    print("ok")


if __name__ == "__main__":
    main(globals())
