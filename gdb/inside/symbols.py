"""What gdb knows of an address: its symbol, and where the prologue of its function ends."""

import re

import gdb

_SYMBOL = re.compile(r"(.+?)(?: \+ (\d+))? in section ")
_LONGEST_ENTRY = 16  # bytes that push and set the frame pointer


def symbol_at(address):
    """(demangled symbol, offset in it); ("", 0) where there is none."""
    match = _SYMBOL.match(gdb.execute(f"info symbol {address:#x}", to_string=True))
    return (match[1], int(match[2] or 0)) if match else ("", 0)


def behind_prologue(address):
    """Where a function with line information has stored its arguments; None for one without."""
    place = gdb.find_pc_line(address)
    block = gdb.block_for_pc(address) if place.symtab else None
    if block is None:
        return None
    starts = [entry.pc for entry in place.symtab.linetable() if address < entry.pc < block.end]
    return min(starts, default=None)


def entered(pc):
    """The symbol of the function in whose prologue `pc` is: its arguments are still in registers. Else "".

    There gdb puts a breakpoint that it set by a symbol, before it had read the function's debug information.
    """
    symbol, offset = symbol_at(pc)
    if not symbol or offset > _LONGEST_ENTRY:
        return ""
    behind = behind_prologue(pc - offset)
    return symbol if behind is None or pc < behind else ""
