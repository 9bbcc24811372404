"""The layout of tensors by debug information, for a gdb in which nothing was measured.

The same document as gdb/inferior/tensor_layout.py makes, without the names of dispatch keys.
"""

import gdb

# c10/core/ScalarType.h; the other names are Python's in small letters
_DTYPES = {
    "Byte": "uint8", "Char": "int8", "Short": "int16", "Int": "int32", "Long": "int64", "Half": "float16",
    "Float": "float32", "Double": "float64", "ComplexHalf": "complex32", "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}  # fmt: skip
_known = {}  # name of the program space's file: layout


def measure():
    """Raises gdb.error where there is no debug information of c10::TensorImpl."""
    key = gdb.current_progspace().filename
    if key not in _known:
        _known[key] = _measured()
    return _known[key]


def _measured():
    fields = {field.name: field for field in gdb.lookup_type("c10::TensorImpl").fields()}
    if "sizes_and_strides_" not in fields:
        raise gdb.error("no debug information of c10::TensorImpl")
    offsets = {
        ours: fields[theirs].bitpos // 8
        for ours, theirs in (
            ("sizes", "sizes_and_strides_"),
            ("numel", "numel_"),
            ("key_set", "key_set_"),
            ("dtype", "data_type_"),
            ("device", "device_opt_"),
        )
    }
    # once c10::optional, {flag, value}, now std::optional, {value, flag}
    flag_first = fields["device_opt_"].type.strip_typedefs().name.startswith("c10::")
    offsets["device"] += flag_first
    return {
        "offsets": offsets,
        "flag_first": flag_first,
        "dtypes": {
            number: _DTYPES.get(name, name.lower()) for name, number in _enumerators("c10::ScalarType")
        },
        "device_types": [name.lower() for name, _ in _enumerators("c10::DeviceType")],
        "undefined": _undefined(),
        "keys": {"backends": 0, "names": []},
    }


def _enumerators(name):
    """[(name without its enum, number)] by number, each number once."""
    fields = gdb.lookup_type(name).strip_typedefs().fields()
    by_number = {}
    for field in fields:
        by_number.setdefault(field.enumval, field.name.rpartition("::")[2])
    return [(by_number[number], number) for number in sorted(by_number) if number >= 0]


def _undefined():
    try:
        return int(gdb.parse_and_eval("(long)&c10::UndefinedTensorImpl::_singleton"))
    except gdb.error:
        return 0
