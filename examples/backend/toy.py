"""Makes the device `toy` of toy.cpp known to torch. The first import compiles it, in half a minute."""

import types
from pathlib import Path

import torch
from torch.utils.cpp_extension import load

load(
    "tracer_example_toy",
    [str(Path(__file__).with_name("toy.cpp"))],
    extra_cflags=["-O1"],
    is_python_module=False,
)
torch.utils.rename_privateuse1_backend("toy")
device_module = types.ModuleType("torch.toy")
device_module.is_available = lambda: True
device_module.is_initialized = lambda: True
device_module.device_count = lambda: 1
device_module.current_device = lambda: 0
device_module._is_in_bad_fork = lambda: False
device_module.manual_seed_all = lambda seed: None
device_module.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]
torch._register_device_module("toy", device_module)
torch.utils.generate_methods_for_privateuse1_backend()
