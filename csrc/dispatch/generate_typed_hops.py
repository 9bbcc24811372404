"""Writes one typed hop wrapper for each distinct operator signature of the installed torch.

The signatures are those of `torch/include/ATen/ops/*_ops.h`. Output: `typed_hops_0.cpp` to
`typed_hops_<parts-1>.cpp`, which instantiate the wrappers, and `typed_hops.cpp`, which collects them.
"""

import argparse
import re
from pathlib import Path

OPERATOR = re.compile(
    r"struct TORCH_API \w+ \{\s+using schema = (?P<signature>.*?);\n.*?"
    r'name = "(?P<name>.*?)";\s*\n\s*static constexpr const char\* overload_name = "(?P<overload>.*?)";',
    re.DOTALL,
)


def operators_by_signature(include: Path) -> dict[str, list[str]]:
    """Full operator names (`aten::add.Tensor`) under each C++ signature, in a stable order."""
    signatures: dict[str, list[str]] = {}
    for header in sorted((include / "ATen" / "ops").glob("*_ops.h")):
        for match in OPERATOR.finditer(header.read_text()):
            name = match["name"] + ("." + match["overload"] if match["overload"] else "")
            signatures.setdefault(match["signature"], []).append(name)
    return signatures


def part_source(part: int, chosen: list[tuple[str, list[str]]]) -> str:
    lines = [
        '#include "dispatch/typed_hop.h"',
        "namespace tracer::dispatch {",
        f"void add_typed_functions_{part}(TypedFunctions& functions) {{",
        "  TypedFunction function;",
    ]
    for signature, names in chosen:
        lines.append(f"  function = typed_function<{signature}>();")
        lines.extend(f'  functions["{name}"] = function;' for name in names)
    return "\n".join([*lines, "}", "}  // namespace tracer::dispatch", ""])


def collection_source(parts: int) -> str:
    declarations = [f"void add_typed_functions_{part}(TypedFunctions&);" for part in range(parts)]
    calls = [f"  add_typed_functions_{part}(functions);" for part in range(parts)]
    return "\n".join(
        [
            '#include "dispatch/typed_hop.h"',
            "namespace tracer::dispatch {",
            *declarations,
            "const TypedFunctions& typed_functions() {",
            "  static const TypedFunctions& all = *[] {",
            "    auto* made = new TypedFunctions;",
            "    TypedFunctions& functions = *made;",
            *calls,
            "    return made;",
            "  }();",
            "  return all;",
            "}",
            "}  // namespace tracer::dispatch",
            "",
        ]
    )


def write_if_changed(path: Path, text: str) -> None:
    """Keeps the time stamp of a file that would stay as it is, so that nothing is compiled again."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--include", type=Path, required=True, help="torch's include folder")
    parser.add_argument("--output", type=Path, required=True, help="folder for the generated files")
    parser.add_argument("--parts", type=int, default=8, help="how many files to spread the wrappers over")
    arguments = parser.parse_args()
    signatures = list(operators_by_signature(arguments.include).items())
    if not signatures:
        parser.error(f"no operator headers in {arguments.include}/ATen/ops: is this torch's include folder?")
    arguments.output.mkdir(parents=True, exist_ok=True)
    for part in range(arguments.parts):
        write_if_changed(
            arguments.output / f"typed_hops_{part}.cpp",
            part_source(part, signatures[part :: arguments.parts]),
        )
    write_if_changed(arguments.output / "typed_hops.cpp", collection_source(arguments.parts))


if __name__ == "__main__":
    main()
