"""Which sources this process runs: what was made by other ones is not taken from a cache.

As Python does for its own compiled files, a source is known by its size and time of change.
Modules are loaded over a while, so the sources must not have changed since the first of them
was: not shortly before the package was loaded, and not up to now.
"""

from __future__ import annotations

import os
import time
from hashlib import blake2b

__all__ = ["INTERNAL", "PACKAGE", "stamp", "unchanged"]

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

INTERNAL = {  # our own files: the user's line is the innermost frame that is in none of them
    os.path.join(folder, name)
    for folder, _, names in os.walk(PACKAGE)
    for name in names
    if name.endswith(".py")
}

_SETTLED = 10.0  # seconds before the package was loaded, which takes less than that


def _stamp() -> tuple[str, float]:
    """All sources, and when the last of them changed; "" if that cannot be told."""
    digest, newest = blake2b(digest_size=16), 0.0
    try:
        for path in sorted(INTERNAL):
            found = os.stat(path)
            newest = max(newest, found.st_mtime)
            row = f"{path[len(PACKAGE) :]} {found.st_size} {found.st_mtime_ns}\n"
            digest.update(row.encode())
    except OSError:
        return "", 0.0
    return digest.hexdigest(), newest


_LOADED, _newest = _stamp()
_KNOWN = bool(INTERNAL) and _newest < time.time() - _SETTLED


def stamp() -> str:
    """What the package was loaded from; "" where that is in doubt."""
    return _LOADED if _KNOWN else ""


def unchanged() -> bool:
    """Whether all that was loaded until now is of these sources."""
    return _KNOWN and _stamp()[0] == _LOADED
