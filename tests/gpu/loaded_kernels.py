"""Loads a module with one kernel, launches it and unloads the module, again and again: where a kernel's name
stood in memory there soon stands that of another one, alike but for its end.

python loaded_kernels.py
"""

from __future__ import annotations

import ctypes

TIMES = 40
PTX = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry {name}()
{{
    ret;
}}
"""


def name_of(number: int) -> str:
    return f"kernel_of_a_module_that_goes_as_soon_as_the_kernel_has_run_{number:04}"


class Driver:
    """Calls of the driver that must succeed."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")

    def __getattr__(self, name: str):  # type: ignore[no-untyped-def]
        def call(*arguments: object) -> None:
            if result := getattr(self._library, name)(*arguments):
                raise RuntimeError(f"{name} returned {result}")

        return call


def launch(driver: Driver, function: ctypes.c_void_p) -> None:
    import torch

    driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None)
    torch.cuda.synchronize()


def main() -> None:
    import torch

    torch.zeros(1, device="cuda")
    driver = Driver()
    for number in range(TIMES):
        name = name_of(number).encode()
        image = PTX.format(name=name.decode()).encode()
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        driver.cuModuleLoadData(ctypes.byref(module), image)
        driver.cuModuleGetFunction(ctypes.byref(function), module, name)
        launch(driver, function)
        driver.cuModuleUnload(module)
    for number in range(TIMES, 2 * TIMES):
        name = name_of(number).encode()
        image = PTX.format(name=name.decode()).encode()
        library, kernel = ctypes.c_void_p(), ctypes.c_void_p()
        driver.cuLibraryLoadData(ctypes.byref(library), image, None, None, 0, None, None, 0)
        driver.cuLibraryGetKernel(ctypes.byref(kernel), library, name)
        launch(driver, kernel)
        driver.cuLibraryUnload(library)


if __name__ == "__main__":
    main()
