"""Compiled objects and programs on disk, by a hash of all that they are made from.

    code = load(key, make)    # what `make` returned for this key, here or in another process

The cache only ever saves time. A file that is damaged in any way is made anew, a directory that
others could write is not used, and a disk that is full, read-only or missing costs a compile.

    RETROGRAD_CACHE        the directory, or "off" (or 0); otherwise XDG_CACHE_HOME or ~/.cache
    RETROGRAD_CACHE_SIZE   how large it may grow, such as "500 MB"; "1 GiB" unless told
"""

from __future__ import annotations

import os
import re
import struct
import time
import warnings
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from retrograd.core.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Stats", "clear", "directory", "find", "keep", "limit", "load", "name_of", "stats"]

_MAGIC, _VERSION = b"retrogrd", 1
_HEADER = struct.Struct("<8sIQ32s")  # magic, version, length and digest of what follows
_ENTRY, _PART = ".object", ".part"
_PRUNE_EVERY = 32  # writes
_STALE = 3600.0  # seconds after which an unfinished file has no writer any more
_UNITS = {
    "B": 1,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "KIB": 1 << 10,
    "MIB": 1 << 20,
    "GIB": 1 << 30,
}


class Stats(NamedTuple):
    """What the cache holds, and how it served this process."""

    directory: str | None  # None: there is none that may be used
    entries: int
    bytes: int
    limit: int
    hits: int
    misses: int
    faults: int  # damaged files, and reads or writes that the disk refused


# Of this process. Two threads may lose a count between them; nothing depends on it.
_counts = {"hits": 0, "misses": 0, "faults": 0, "writes": 0}
_warned: set[str] = set()


def load(key: str, make: Callable[[], bytes]) -> bytes:
    """What `make` returns for this key, from disk where it is there whole."""
    name = name_of(key)
    code = find(name)
    if code is None:
        code = make()
        keep(name, code)
    return code


def name_of(key: str) -> str:
    """The name under which the entry of a key is found."""
    return blake2b(key.encode(), digest_size=24).hexdigest()


def find(name: str) -> bytes | None:
    """An entry, if it is on disk whole."""
    where = directory(create=True)
    code = None if where is None else _read(os.path.join(where, name + _ENTRY), name)
    _counts["misses" if code is None else "hits"] += 1
    return code


def keep(name: str, code: bytes) -> None:
    """Write an entry, if there is a directory that may be used."""
    where = directory()
    if where is not None:
        _write(os.path.join(where, name + _ENTRY), name, code)


# -- one file ------------------------------------------------------------------------------


def _digest(name: str, code: bytes) -> bytes:
    return blake2b(code, digest_size=32, key=name.encode()).digest()


def _read(path: str, name: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            whole = file.read()
    except FileNotFoundError:
        return None
    except OSError:
        _counts["faults"] += 1
        return None
    code = _checked(whole, name)
    if code is None:
        _counts["faults"] += 1
        return None
    try:
        os.utime(path)  # the least recently used go first
    except OSError:
        _counts["faults"] += 1
    return code


def _checked(whole: bytes, name: str) -> bytes | None:
    """The object in a file, if the file is what was written."""
    if len(whole) < _HEADER.size:
        return None
    magic, version, length, digest = _HEADER.unpack_from(whole)
    code = whole[_HEADER.size :]
    if (magic, version, length) != (_MAGIC, _VERSION, len(code)):
        return None
    return code if digest == _digest(name, code) else None


def _write(path: str, name: str, code: bytes) -> None:
    """The whole file under its name, or nothing: readers never see a part."""
    whole = _HEADER.pack(_MAGIC, _VERSION, len(code), _digest(name, code)) + code
    most = limit()
    if len(whole) > most:
        return
    part = f"{path}.{os.getpid()}.{os.urandom(6).hex()}{_PART}"
    try:
        try:
            _write_all(part, whole)
            os.replace(part, path)
        except BaseException:  # an interrupt too
            _remove(part)
            raise
    except OSError:
        _counts["faults"] += 1
        return
    if _counts["writes"] % _PRUNE_EVERY == 0:
        _prune(os.path.dirname(path), most)
    _counts["writes"] += 1


def _write_all(path: str, whole: bytes) -> None:
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(target, "wb") as file:
        file.write(whole)
        file.flush()
        os.fsync(file.fileno())  # or a crash could leave the name without the bytes


def _remove(path: str) -> bool:
    try:
        os.unlink(path)
    except OSError:
        return False
    return True


# -- the directory -------------------------------------------------------------------------


def directory(*, create: bool = False) -> str | None:
    """The directory in use; None where it is switched off, missing or open to others."""
    told = os.environ.get("RETROGRAD_CACHE", "")
    if told.lower() in ("off", "0"):
        return None
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    path = os.path.abspath(os.path.expanduser(told or os.path.join(home, "retrograd")))
    try:
        if create and not os.path.isdir(path):
            os.makedirs(path, mode=0o700, exist_ok=True)
        return path if _private(path) else None
    except OSError:
        _counts["faults"] += create
        return None


def _private(path: str) -> bool:
    """Whether nobody else can put code there; says so once where somebody can."""
    found = os.stat(path)
    if not hasattr(os, "geteuid"):
        return True
    if found.st_uid == os.geteuid() and not found.st_mode & 0o022:
        return True
    if path not in _warned:
        _warned.add(path)
        warnings.warn(
            f"cache: {path} belongs to, or can be written by, other users, who could put code "
            "there; it is not used. Make it private (chmod 700), or set RETROGRAD_CACHE to "
            'another directory or to "off".',
            RuntimeWarning,
            stacklevel=4,
        )
    return False


def limit() -> int:
    """How many bytes the cache may hold."""
    told = os.environ.get("RETROGRAD_CACHE_SIZE") or "1 GiB"
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", told)
    unit = _UNITS.get((found[2] or "B").upper()) if found else None
    if found is None or unit is None:
        raise ArgumentError(
            f'RETROGRAD_CACHE_SIZE: got {told!r}; it is bytes, such as "500 MB" or "1 GiB"'
        )
    return int(float(found[1]) * unit)


def _files(where: str, ending: str) -> Iterator[tuple[float, int, str]]:
    """When last used, size and path of the files; those that vanish meanwhile are left out."""
    try:
        found = list(os.scandir(where))
    except OSError:
        return
    for entry in found:
        if entry.name.endswith(ending):
            try:
                info = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            yield info.st_mtime, info.st_size, entry.path


def _prune(where: str, most: int) -> None:
    """Delete what killed writers left; if too large, the least recently used, to 9/10."""
    for used, _, path in _files(where, _PART):
        if time.time() - used > _STALE:
            _remove(path)
    files = sorted(_files(where, _ENTRY))
    held = sum(size for _, size, _ in files)
    if held <= most:
        return
    for _, size, path in files:
        if held <= most * 9 // 10:
            return
        held -= size if _remove(path) else 0


def stats() -> Stats:
    """What the cache holds, and how it served this process."""
    where = directory()
    sizes = [size for _, size, _ in _files(where, _ENTRY)] if where else []
    return Stats(
        where,
        len(sizes),
        sum(sizes),
        limit(),
        _counts["hits"],
        _counts["misses"],
        _counts["faults"],
    )


def clear() -> int:
    """Delete all entries; how many there were."""
    where = directory()
    if where is None:
        return 0
    for _, _, path in list(_files(where, _PART)):
        _remove(path)
    return sum(_remove(path) for _, _, path in list(_files(where, _ENTRY)))
