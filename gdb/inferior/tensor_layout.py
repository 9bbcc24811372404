"""Measures where c10::TensorImpl keeps what gdb shows of a tensor; runs in the debugged process.

Tensors with known properties are made and their memory is searched for them, so that no debug
information and no table of versions is needed.
"""

import ctypes
import os
import re
import struct

_BYTES = 384  # more than any TensorImpl so far has
_NODE = 640  # of a node of autograd that keeps a scalar, and a little more
_NO_INDEX = 0xFF  # a device without an index, such as "cpu"
# c10/core/DeviceType.h, whose numbers are part of torch's ABI
_DEVICE_TYPES = (
    "cpu cuda mkldnn opengl opencl ideep hip fpga maia xla vulkan metal xpu mps meta hpu ve lazy ipu mtia "
    "privateuseone"
).split()


def measure():
    """{offsets, dtypes, devices, keys, undefined}; an offset that is not found for certain is left out."""
    import torch

    with torch.no_grad():
        probes = _probes(torch)
        contents = [(tensor, _memory(tensor._cdata)) for tensor in probes]
        offsets = {
            "sizes": _found(contents, _sizes),
            "numel": _found(contents, lambda tensor: struct.pack("<q", tensor.numel())),
            "key_set": _found(contents, lambda tensor: _key_set(torch, tensor)),
        }
        offsets["dtype"], dtypes = _dtypes(torch)
        offsets["device"] = _device(torch)
    return {
        "offsets": {name: offset for name, offset in offsets.items() if offset is not None},
        "dtypes": dtypes,
        "device_types": _DEVICE_TYPES,
        "keys": _optional(_key_names, torch, {"backends": 0, "names": []}),
        "undefined": _optional(_undefined, torch, 0),
        "flag_first": _flag_first(contents, offsets["device"]),
        "scalars": _optional(_scalars, torch, []),
        "boxed": _optional(_boxed, torch, []),
    }


def _memory(address):
    return ctypes.string_at(address, _BYTES)


def _probes(torch):
    """Tensors whose properties differ from each other and from common values."""
    base = torch.zeros(40, 50)
    return [
        torch.zeros(7, 11, 13),
        torch.zeros(17, 19, 23)[3:],
        torch.zeros(9, 8, 7, 5)[2:, 1:],
        base.t()[3:, 2:],
        torch.zeros(31, 37, requires_grad=True),
        torch.zeros(29, 41, dtype=torch.float64),
    ]


def _found(contents, expected):
    """The one 8-byte aligned offset at which every probe has its own value, None if not exactly one."""
    candidates = set(range(0, _BYTES - 128, 8))
    try:
        for tensor, memory in contents:
            value = expected(tensor)
            candidates = {at for at in candidates if memory[at : at + len(value)] == value}
    except Exception:  # a property that this version does not tell
        return None
    return candidates.pop() if len(candidates) == 1 else None


def _sizes(tensor):
    """The beginning of SizesAndStrides: the number of dimensions, then (up to five of them) the sizes."""
    sizes = list(tensor.shape)
    return struct.pack("<%dq" % (1 + len(sizes)), len(sizes), *sizes)


def _key_set(torch, tensor):
    key_set = torch._C._dispatch_keys(tensor)
    return struct.pack("<Q", _value(key_set).value)


def _value(key_set):
    """The C++ value that a pybind11 object owns, while it lives: raw_repr() is not in every version."""
    return ctypes.c_uint64.from_address(
        ctypes.c_void_p.from_address(id(key_set) + object.__basicsize__).value
    )


def _dtypes(torch):
    """(offset of the two bytes of the dtype, {its number: name})."""
    # PyObject_HEAD is followed by the number in torch's own dtype objects. Tensors of the rarer
    # types would cost the script the warnings that torch gives once.
    numbers = {
        value: ctypes.c_uint8.from_address(id(value) + object.__basicsize__).value
        for value in vars(torch).values()
        if isinstance(value, torch.dtype)
    }
    common = "uint8 int8 int16 int32 int64 float16 float32 float64 bool bfloat16 complex64".split()
    samples = [torch.empty(7, 11, 13, dtype=getattr(torch, name)) for name in common]
    candidates = set(range(0, _BYTES, 2))
    for tensor in samples:
        memory, number = _memory(tensor._cdata), struct.pack("<H", numbers[tensor.dtype])
        candidates = {at for at in candidates if memory[at : at + 2] == number}
    names = {str(number): str(value).replace("torch.", "") for value, number in numbers.items()}
    return (candidates.pop(), names) if len(candidates) == 1 else (None, {})


def _device(torch):
    """The offset of {type, index}, a byte each: every tensor on "meta" differs there from those on "cpu"."""
    shapes = [(3,), (5, 7), (2, 2, 2), (4, 1, 6), (0,)]
    numbers = {"cpu": _DEVICE_TYPES.index("cpu"), "meta": _DEVICE_TYPES.index("meta")}
    candidates = set(range(_BYTES - 1))
    for kind, number in numbers.items():
        tensors = [torch.zeros(shape, device=kind) for shape in shapes]
        for memory in [_memory(tensor._cdata) for tensor in tensors]:
            candidates = {at for at in candidates if memory[at] == number and memory[at + 1] == _NO_INDEX}
    return candidates.pop() if len(candidates) == 1 else None


def _flag_first(contents, device):
    """Whether an optional has its flag before its value, by the device of the probes; None if unknown.

    c10::optional was {flag, value} until it became std::optional, which is {value, flag}. Before the device
    lies the high byte of the dtype, 0, where there is no flag.
    """
    if device is None:
        return None
    if all(memory[device - 1] == 1 for _, memory in contents):
        return True
    return False if all(memory[device + 2] == 1 for _, memory in contents) else None


def _scalars(torch):
    """[(tag of a c10::Scalar, what it holds)]: versions differ. A node of autograd keeps an exponent."""
    values = {"float": (2.5, "<d"), "int": (7, "<q"), "bool": (True, "<?"), "complex": (2.5 + 7j, "<2d")}
    nodes = {}
    with torch.enable_grad():
        base = torch.ones(1, requires_grad=True)
        for kind, (value, _) in values.items():
            node = base.pow(value).grad_fn
            nodes[kind] = ctypes.string_at(
                ctypes.c_void_p.from_address(id(node) + object.__basicsize__).value, _NODE
            )
    parts = {"complex": (2.5, 7.0)}
    packed = {kind: struct.pack(form, *parts.get(kind, (value,))) for kind, (value, form) in values.items()}
    (at,) = [
        at
        for at in range(16, _NODE - 16, 16)
        if all(nodes[kind][at : at + len(value)] == value for kind, value in packed.items())
    ]
    tags = [(struct.unpack_from("<I", nodes[kind], at - 16)[0], kind) for kind in values]
    unsigned = [(2, "uint64")] if 2 not in dict(tags) else []  # came between int and complex
    return tags + unsigned


def _boxed(torch):
    """What a c10::IValue holds, by its tag. Versions differ, and torch's header has the list."""
    with open(os.path.join(os.path.dirname(torch.__file__), "include", "ATen", "core", "ivalue.h")) as header:
        listed = header.read().partition("#define TORCH_FORALL_TAGS(_)")[2].partition("\n\n")[0]
    return re.findall(r"_\((\w+)\)", listed)


def _key_names(torch):
    """{"backends": bits of backends, "names": for each functionality its key, or its keys by backend}."""
    backends = torch._C._dispatch_num_backends()
    names = [["Undefined"]]
    for functionality in range(64 - backends):
        bit = 1 << (backends + functionality)
        row = [_key_name(torch, bit | (1 << backend >> 1)) for backend in range(backends + 1)]
        names.append(row if len(set(row)) > 1 else row[:1])
    return {"backends": backends, "names": names}


def _key_name(torch, raw):
    key_set = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    _value(key_set).value = raw
    return str(torch._C._dispatch_key_name(key_set.highestPriorityTypeId()))


def _optional(function, torch, otherwise):
    try:
        return function(torch)
    except Exception:  # a version of torch that cannot tell; gdb shows the rest
        return otherwise


def _undefined(torch):
    """The address of the one TensorImpl that all undefined tensors share, 0 where it is not exported."""
    library = os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so")
    name = "_ZN3c1019UndefinedTensorImpl10_singletonE"
    return ctypes.addressof(ctypes.c_char.in_dll(ctypes.CDLL(library), name))
