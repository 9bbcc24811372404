"""Reads tensors from memory, with the offsets that were measured in the debugged process."""

import struct

_SPAN = 384  # bytes that hold every measured offset
_MOST_DIMENSIONS = 64
_INLINE_DIMENSIONS = 5


# Dispatch keys that are set for a thread, never for a tensor
_OF_THREADS = {"BackendSelect", "FuncTorchDynamicLayerBackMode", "FuncTorchDynamicLayerFrontMode", "Tracer"}


class NoTensorError(ValueError):
    """There is no tensor at an address."""


class KeySets:
    """Names of dispatch key sets."""

    def __init__(self, measured):
        self._backends = measured["backends"]
        self._names = measured["names"]
        self._known = {}  # raw: names

    def indices(self):
        """{key: its place in the dispatcher's tables}: keys that each backend has, have one for each."""
        found = {}
        places = (name for row in self._names for name in (row[1:] or row))
        for place, name in enumerate(places):
            found.setdefault(name, place)
        return found

    def highest(self, raw):
        """The key of highest priority, None where it has no name."""
        return self._name((raw >> self._backends).bit_length(), self._backend_bits(raw).bit_length())

    def names(self, raw):
        """All keys, the highest first; of keys that each backend has, those of its backends."""
        if raw not in self._known:
            self._known[raw] = self._found(raw)
        return self._known[raw]

    def _found(self, raw):
        found = []
        backends = [bit + 1 for bit in range(self._backends) if self._backend_bits(raw) >> bit & 1] or [0]
        for functionality in reversed(range(1, 65 - self._backends)):
            if raw >> (self._backends + functionality - 1) & 1:
                names = [self._name(functionality, backend) for backend in reversed(backends)]
                found += [name for name in dict.fromkeys(names) if name]
        return found

    def plausible(self, raw, names):
        """Whether a tensor may have these keys: those of one backend, and none that only a thread has."""
        return bin(self._backend_bits(raw)).count("1") <= 1 and not _OF_THREADS.intersection(names)

    def _backend_bits(self, raw):
        return raw & ((1 << self._backends) - 1)

    def _name(self, functionality, backend):
        row = self._names[functionality] if functionality < len(self._names) else []
        return row[backend] if len(row) > 1 and backend < len(row) else (row[0] if row else None)


class Tensors:
    """Tensors by the address of an `at::Tensor` or of a `c10::TensorImpl`.

    A tensor is {"shape", "stride", "dtype", "device", "keys", "defined"}. What could not be measured
    or is not kept in these words (sizes of nested tensors and of Python subclasses, strides of
    sparse ones) is None.
    """

    def __init__(self, measured, memory):
        self._offsets = measured["offsets"]
        self._dtypes = {int(number): name for number, name in measured["dtypes"].items()}
        self._device_types = measured["device_types"]
        self._undefined = measured["undefined"]
        self._memory = memory
        self.key_sets = KeySets(measured["keys"])

    def tensor(self, address):
        """The tensor whose `at::Tensor` lies at `address`. Raises NoTensorError."""
        return self.implementation(self._word(address))

    def tensors(self, address, count):
        """A list of tensors side by side: `at::Tensor[count]`."""
        if count > 100_000:
            raise NoTensorError("%d tensors" % count)
        words = struct.unpack("<%dQ" % count, self._read(address, 8 * count))
        return [self.implementation(word) for word in words]

    def implementation(self, address):
        """The tensor whose `c10::TensorImpl` lies at `address`. Raises NoTensorError."""
        if address == self._undefined and address:
            return {"defined": False}
        memory = self._read(address, _SPAN)
        raw = self._unpacked("<Q", memory, "key_set")
        if raw == 0 and not self._undefined:  # libc10 does not export the one that all share
            return {"defined": False}
        keys = [] if raw is None else self.key_sets.names(raw)
        dtype = self._dtypes.get(self._unpacked("<H", memory, "dtype"))
        if raw == 0 or (dtype is None and "dtype" in self._offsets):
            raise NoTensorError("no dispatch keys or no dtype")
        shape, stride = self._sizes(memory)
        numel = self._unpacked("<q", memory, "numel")
        product = 1
        for size in shape:
            product *= size
        hidden = any(name == "Python" or name.startswith("NestedTensor") for name in keys)
        if hidden and not self.key_sets.plausible(raw, keys):  # their sizes tell nothing
            raise NoTensorError("no dispatch keys of a tensor")
        if numel != product and not hidden:
            raise NoTensorError("%r elements in %r" % (numel, shape))
        return {
            "defined": True,
            "shape": None if hidden else shape,
            "stride": None if hidden or any(name.startswith("Sparse") for name in keys) else stride,
            "dtype": dtype,
            "device": self._device(memory),
            "keys": keys,
        }

    def dtype(self, number):
        """The name of a dtype by its number."""
        return self._dtypes.get(number, str(number))

    def device(self, kind, index):
        """ "cuda:1" from the two bytes of a c10::Device. Raises NoTensorError."""
        if kind >= len(self._device_types):
            raise NoTensorError("no device")
        return self._device_types[kind] + (":%d" % index if index < 128 else "")

    def _sizes(self, memory):
        at = self._offsets.get("sizes")
        if at is None:
            raise NoTensorError("the layout of sizes is unknown")
        (dimensions,) = struct.unpack_from("<Q", memory, at)
        if dimensions > _MOST_DIMENSIONS:
            raise NoTensorError("%d dimensions" % dimensions)
        if dimensions <= _INLINE_DIMENSIONS:
            sizes = struct.unpack_from("<%dq" % dimensions, memory, at + 8)
            strides = struct.unpack_from("<%dq" % dimensions, memory, at + 8 + 8 * _INLINE_DIMENSIONS)
        else:
            (elsewhere,) = struct.unpack_from("<Q", memory, at + 8)
            words = struct.unpack("<%dq" % (2 * dimensions), self._read(elsewhere, 16 * dimensions))
            sizes, strides = words[:dimensions], words[dimensions:]
        if any(size < 0 for size in sizes):
            raise NoTensorError("negative sizes")
        return list(sizes), list(strides)

    def _device(self, memory):
        at = self._offsets.get("device")
        return None if at is None else self.device(memory[at], memory[at + 1])

    def _unpacked(self, form, memory, name):
        at = self._offsets.get(name)
        return None if at is None else struct.unpack_from(form, memory, at)[0]

    def _word(self, address):
        return struct.unpack("<Q", self._read(address, 8))[0]

    def _read(self, address, size):
        try:
            return self._memory.read(address, size)
        except OSError as error:
            raise NoTensorError(str(error)) from None
