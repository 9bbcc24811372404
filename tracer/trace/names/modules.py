"""How modules are called in tables."""

from __future__ import annotations

from collections import defaultdict

from tracer.trace.bytes.definitions import ModulePath

_MOST_LEVELS = 64  # of a path: a hostile one has thousands


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


def modules_around(paths: list[ModulePath]) -> dict[str, str | None]:
    """Each module, and the one around it by its path: containers that are never called, too."""
    around: dict[str, str | None] = {}
    for path, text in zip(paths, module_texts(paths), strict=True):
        around[outer := path.root] = None
        begin = text.removesuffix(path.names)
        for name in path.names.split(".", _MOST_LEVELS) if path.names else ():
            module = begin + name
            around.setdefault(module, outer)
            outer, begin = module, f"{module}."
    return around
