"""An operator's dispatch table, as the dispatcher of this process has it.

The texts are those of `torch._C._dispatch_dump_table` (what each key runs now, one line a key, the key
of lowest priority first) and `torch._C._dispatch_dump` (what was registered, to a key or an alias key).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tracer.base import torch_abi
from tracer.base.this_torch import this_torch

_NOT_OF_PROGRAMS = ("TESTING_ONLY_",)


@dataclass(frozen=True)
class Entry:
    """What one dispatch key runs.

    `registered_at` is `file:line` with the folder it was compiled in, or what torch says in its place;
    `rule` why this one won: "kernel", "math kernel", "default backend kernel", "autograd kernel",
    "nested kernel", "batched kernel", "backend fallback".
    """

    key: str
    registered_at: str
    rule: str
    fallthrough: bool


@dataclass(frozen=True)
class Registration:
    """A kernel that was registered for a key or an alias key; inactive: a later one took its place."""

    key: str
    registered_at: str
    alias: bool
    active: bool


@dataclass(frozen=True)
class DispatchTable:
    """`entries` are in order of priority, lowest first; a call at a key in `without` raises."""

    op: str
    schema: str
    tags: tuple[str, ...]
    entries: tuple[Entry, ...]
    registrations: tuple[Registration, ...]
    without: tuple[str, ...]

    def entry(self, key: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.key == key), None)

    def aliases(self, entry: Entry) -> tuple[str, ...]:
        """The alias keys, such as CompositeImplicitAutograd, through which the entry came to its kernel."""
        if entry.rule in ("kernel", "backend fallback"):
            return ()
        return tuple(
            registration.key
            for registration in self.registrations
            if registration.alias
            and registration.active
            and registration.registered_at == entry.registered_at
        )

    def replaced(self, entry: Entry) -> tuple[str, ...]:
        """Where the kernels were registered that another one replaced at this very key."""
        if entry.rule != "kernel":
            return ()
        return tuple(
            registration.registered_at
            for registration in self.registrations
            if registration.key == entry.key and not registration.active
        )

    @property
    def is_composite(self) -> bool:
        """Whether autograd has no kernel of its own for it and sees what it calls instead."""
        entry = self.entry("AutogradCPU")
        return entry is not None and entry.rule == "math kernel"


def read_table(op: str) -> DispatchTable:
    """The table of an operator, `aten::add.Tensor`, in this process; imports torch.

    Raises RuntimeError if the operator does not exist.
    """
    torch = this_torch()
    native = torch._C
    name, _, overload = op.partition(".")
    facts, registrations = parse_registrations(native._dispatch_dump(op))
    entries = parse_table(native._dispatch_dump_table(op))
    all_keys = key_names(native._dispatch_keyset_to_string(native._dispatch_keyset_full()))
    there = {entry.key for entry in entries}
    return DispatchTable(
        op,
        facts.get("schema", op),
        _tags(native, name, overload),
        entries,
        registrations,
        tuple(key for key in all_keys if key not in there and not key.startswith(_NOT_OF_PROGRAMS)),
    )


def parse_table(text: str) -> tuple[Entry, ...]:
    """The entries in a computed table; raises ValueError for a line of another form."""
    entries = []
    for line in text.splitlines():
        found = torch_abi.TABLE_ENTRY.fullmatch(line)
        if not found:
            raise ValueError(f"torch writes a dispatch table in a way that is not known: {line!r}")
        where = found["where"].removeprefix(torch_abi.REGISTERED_AT)
        entries.append(Entry(found["key"], where, found["rule"] or "", bool(found["fallthrough"])))
    return tuple(entries)


def parse_registrations(text: str) -> tuple[dict[str, str], tuple[Registration, ...]]:
    """What an operator says of itself (name, schema, debug), and what was registered for it."""
    facts: dict[str, str] = {}
    registrations = []
    for line in text.splitlines():
        if fact := torch_abi.OPERATOR_FACT.fullmatch(line):
            facts[fact[1]] = fact["value"]
        elif found := torch_abi.REGISTRATION.fullmatch(line):
            registrations.append(
                Registration(
                    found["key"],
                    found["where"].removeprefix(torch_abi.REGISTERED_AT),
                    bool(found["alias"]),
                    not found["inactive"],
                )
            )
        elif line.strip():
            raise ValueError(f"torch writes a registration in a way that is not known: {line!r}")
    return facts, tuple(registrations)


def key_names(key_set: str) -> tuple[str, ...]:
    """The keys in `DispatchKeySet(CPU, CUDA)`."""
    return tuple(key_set.removeprefix("DispatchKeySet(").removesuffix(")").split(", "))


def folded(entries: Iterable[Entry]) -> list[tuple[Entry, ...]]:
    """Entries that share a registration and a rule, in the order of their first keys."""
    groups: dict[tuple[str, str, bool], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.registered_at, entry.rule, entry.fallthrough), []).append(entry)
    return [tuple(group) for group in groups.values()]


def _tags(native: object, name: str, overload: str) -> tuple[str, ...]:
    tags = native._get_operation_overload(name, overload)[2]  # type: ignore[attr-defined]
    return tuple(sorted(str(tag).removeprefix("Tag.") for tag in tags))
