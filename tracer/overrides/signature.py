"""Whether a Python function takes the arguments that the dispatcher passes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tracer.overrides.override_errors import OverrideError

_NAMED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Defaults:
    """The arguments that the dispatcher omits because they have the operator's default.

    It hands the arguments over by position, those that are keyword-only by name, and leaves defaults
    out. A function that has no defaults of its own is handed the operator's.
    """

    def __init__(self, schema: Any) -> None:
        arguments = schema.arguments
        self._positional = [argument for argument in arguments if not argument.kwarg_only]
        self._named = {
            argument.name: argument.default_value
            for argument in arguments
            if argument.kwarg_only and argument.has_default_value()
        }

    def filled(self, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """The arguments with nothing left out."""
        missing = [argument.default_value for argument in self._positional[len(args) :]]
        return (*args, *missing), {**self._named, **kwargs}


def check_signature(function: Callable[..., Any], schema: Any) -> bool:
    """Returns whether the function must be handed the defaults too.

    Raises OverrideError where it is seen that the function cannot take the operator's arguments. Of
    functions without a Python signature (those of C++ extensions) nothing is seen.
    """
    if hasattr(function, "_schema"):
        _check_schema(function, schema)
        return False
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return False
    positional = [argument.name for argument in schema.arguments if not argument.kwarg_only]
    named = [argument.name for argument in schema.arguments if argument.kwarg_only]
    try:
        signature.bind(*positional, **dict.fromkeys(named))
    except TypeError as error:
        raise OverrideError(
            f"{_name(function)} does not take the operator's arguments: {error}; {_wanted(schema)}"
        ) from None
    places = [parameter.name for parameter in signature.parameters.values() if parameter.kind in _NAMED]
    for name, place in zip(positional, places, strict=False):
        if name != place and place in positional:
            raise OverrideError(
                f"{_name(function)} has {place}, but the operator has {name}; {_wanted(schema)}"
            )
    optional = [argument for argument in schema.arguments if argument.has_default_value()]
    required = [argument.name for argument in schema.arguments if not argument.has_default_value()]
    try:
        signature.bind(
            *(name for name in positional if name in required),
            **{name: None for name in named if name in required},
        )
    except TypeError:
        return bool(optional)
    return False


def _check_schema(function: Any, schema: Any) -> None:
    """An operator that replaces this one must take and return the same types."""

    def types(of: Any) -> list[list[tuple[str, bool]]]:
        return [
            [(str(one.type), getattr(one, "kwarg_only", False)) for one in part]
            for part in (of.arguments, of.returns)
        ]

    if types(function._schema) != types(schema):
        raise OverrideError(
            f"{function._schema} does not match the operator; give one that takes and returns {schema}"
        )


def _wanted(schema: Any) -> str:
    """The line to write."""
    parts, star = [], False
    for argument in schema.arguments:
        if argument.kwarg_only and not star:
            parts.append("*")
            star = True
        default = f"={argument.default_value!r}" if argument.has_default_value() else ""
        parts.append(argument.name + default)
    return f"write it as def {schema.name.partition('::')[2].strip('_')}({', '.join(parts)})"


def _name(function: object) -> str:
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)
