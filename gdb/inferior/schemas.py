"""Names the operators of the torch that runs; runs in the debugged process."""


def measure():
    """{"aten::add.Tensor": {"arguments": [name, ...], "returns": [type, ...], "numbered": {name: type}}}.

    Of all operators. A returned tensor that an argument holds already is "Tensor&". Numbered: arguments that
    boxed are the number of a dtype, a layout or a memory format.
    """
    import torch

    found = {}
    for schema in torch._C._jit_get_all_schemas():
        overload = "." + schema.overload_name if schema.overload_name else ""
        found[schema.name + overload] = {
            "arguments": [argument.name for argument in schema.arguments],
            "returns": [_returned(schema, value) for value in schema.returns],
            "numbered": _numbered(schema),
        }
    return found


def _numbered(schema):
    kinds = [(each.name, str(getattr(each, "real_type", each.type))) for each in schema.arguments]
    kinds = [(name, kind.replace("Optional[", "").rstrip("]")) for name, kind in kinds]
    return {name: "c10::" + kind for name, kind in kinds if kind in ("ScalarType", "Layout", "MemoryFormat")}


def _returned(schema, value):
    in_place = schema.name.endswith("_") or any(argument.is_out for argument in schema.arguments)
    kind = str(value.type)
    return kind + "&" if kind == "Tensor" and in_place else kind
