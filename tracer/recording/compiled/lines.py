"""The Python lines of this run's graphs. What comes from a cache names those of the run that compiled it."""

from __future__ import annotations

from typing import Any

from tracer.recording.compiled.origins import Node, user_line


def lines_of_graph(graph_module: Any) -> dict[str, str]:
    """The line of each node of the graph that Dynamo traced in this run."""
    graph = getattr(graph_module, "graph", None)
    lines = {
        node.name: user_line(node.meta.get("stack_trace"))
        for node in (graph.nodes if graph is not None else ())
        if node.op.startswith("call")
    }
    return {name: line for name, line in lines.items() if line}


def moved_lines(kernels: list[list[Node]], lines: dict[str, str]) -> dict[str, str]:
    """From lines of the run that compiled to those of this one, where nodes with Dynamo's names tell them."""
    moved: dict[str, set[str]] = {}
    for nodes in kernels:
        for node in nodes:
            if node["source"] and node["dynamo"] in lines:
                moved.setdefault(node["source"], set()).add(lines[node["dynamo"]])
    return {old: new.pop() for old, new in moved.items() if len(new) == 1}


def with_lines(nodes: list[Node], lines: dict[str, str], moved: dict[str, str]) -> list[Node]:
    """The nodes with lines of this run; null where it is not known."""
    return [
        {**node, "source": lines.get(node["dynamo"] or "") or moved.get(node["source"] or "")}
        for node in nodes
    ]
