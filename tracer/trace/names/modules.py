"""How modules are called in tables."""

from __future__ import annotations

from collections import defaultdict

from tracer.trace.bytes.definitions import ModulePath


def module_texts(paths: list[ModulePath]) -> list[str]:
    """`encoder.gru` of each path; the class of the outermost module where it is that module itself.

    Where modules of several models have one path, their paths begin with the class of the model, as all
    others of these models do: `Generator.main.0`.
    """
    roots: defaultdict[str, set[str]] = defaultdict(set)
    for path in paths:
        roots[path.names].add(path.root)
    shared = {root for names, known in roots.items() if names and len(known) > 1 for root in known}
    return [
        ".".join(filter(None, (path.root, path.names)))
        if path.root in shared or not path.names
        else path.names
        for path in paths
    ]
