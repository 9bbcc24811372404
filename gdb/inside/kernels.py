"""Which of an operator's kernel functions run at a dispatch key, as far as their names tell."""

import re

import gdb

_WRAPPER = re.compile(r"wrapper_([A-Za-z0-9]+)_")
_NAMESPACES = {
    "torch::autograd::VariableType::": "Autograd",
    "torch::ADInplaceOrView::": "ADInplaceOrView",
    "torch::TraceType::": "Tracer",
    "at::functionalization::": "Functionalize",
}


def at_key(path, key, key_sets):
    """(points, key to be asked at each hit, or None) for kernel functions that run at `key`.

    `path`: the points of the operator. A kernel function that is registered for many keys at once, such as
    Autograd or CompositeImplicitAutograd, runs at `key` when that is what it is called with.
    """
    kernels = [point for point in path if point["kind"] in ("kernel", "boxed kernel")]
    own = [point for point in kernels if registered_at(point["name"]) == key]
    if own:
        return own, None
    shared = [point for point in kernels if _may_run_at(registered_at(point["name"]), key, key_sets)]
    if shared:
        return shared, key
    names = ", ".join(dict.fromkeys(point["name"] for point in kernels)) or "none that has a name"
    raise gdb.GdbError(f"no kernel function of this operator is known to run at {key}; there are: {names}")


def registered_at(name):
    """The key, or the name for several keys, that a kernel function was registered for; None: unknown."""
    match = _WRAPPER.match(name)
    if match:
        return match[1]
    return next((key for start, key in _NAMESPACES.items() if name.startswith(start)), None)


def _may_run_at(registered, key, key_sets):
    if registered is None:
        return key_sets.has(key)
    if not key_sets.has_of_backends(key):
        return False
    if key.startswith("Autograd"):
        return registered == "Autograd" or registered.startswith("CompositeImplicitAutograd")
    return registered.startswith("Composite")
