"""Marks by which a user's tracer knows the traces that it recorded itself.

A mark is a hash of facts of a recording, with a random key that only the user can read. Who wrote a trace can
copy any fact of it, but cannot make a mark of another user.
"""

from __future__ import annotations

import contextlib
import os
import stat

from tracer.base.cache import cache_folder
from tracer.base.machine import this_machine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_BYTES = 32


def mark(environment: Mapping[str, Any]) -> str:
    """Of a recording of this user on this machine; "" if no key can be kept."""
    return _mark(environment, _key() or _new_key())


def is_own(environment: Mapping[str, Any]) -> bool:
    """Whether this user recorded it on this machine, since it was started."""
    known = environment.get("own")
    return bool(known) and known == _mark(environment, _key())


def _mark(environment: Mapping[str, Any], key: bytes) -> str:
    machine = this_machine()
    if not key or not machine:
        return ""
    import hashlib
    import json

    # Those on which it depends which files a reader shows.
    where = environment.get("cwd"), (environment.get("argv") or [""])[0], environment.get("started_at")
    facts = json.dumps([machine, *where])
    return hashlib.blake2b(facts.encode(), key=key, digest_size=16).hexdigest()


def _path() -> str:
    return os.path.join(cache_folder(), "own.key")


def _key() -> bytes:
    """b"" if there is none that only this user can read."""
    try:
        descriptor = os.open(_path(), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        found = os.fstat(descriptor)
        is_safe = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
        key = os.read(descriptor, _BYTES + 1) if is_safe else b""
    except OSError:
        return b""
    finally:
        os.close(descriptor)
    return key if len(key) == _BYTES else b""


def _new_key() -> bytes:
    """Two recordings that begin at once keep the same one."""
    temporary = f"{_path()}.{os.getpid()}"
    try:
        os.makedirs(cache_folder(), exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:
        return b""
    with contextlib.suppress(OSError):  # another recording was first, or the disk is full
        if os.write(descriptor, os.urandom(_BYTES)) == _BYTES:
            os.link(temporary, _path())
    with contextlib.suppress(OSError):
        os.unlink(temporary)
    os.close(descriptor)
    return _key()
