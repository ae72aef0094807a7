"""Write a page so that it is whole or not there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from retrograd.core.errors import ArgumentError

__all__ = ["write_file"]


def write_file(who: str, path: str | os.PathLike[str], text: str) -> Path:
    """Write a page of HTML; the file is whole or not there."""
    target = Path(path)
    if target.suffix not in (".html", ".htm"):
        raise ArgumentError(f"{who}: {target.name} must end in .html")
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)  # mkstemp lets nobody else read it; pictures are shown
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return target
