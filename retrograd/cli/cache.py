"""`retrograd cache`: the cache of compiled programs, shown and emptied."""

from __future__ import annotations

import argparse
from typing import Any

from retrograd.jit.llvm import cache

__all__ = ["add_cache"]

_EXAMPLES = """\
examples:
  retrograd cache                             directory, entries, bytes and limit
  retrograd cache clear                       delete every entry
  RETROGRAD_CACHE=build/cache retrograd cache
                                              the same for another directory

environment:
  RETROGRAD_CACHE        the directory, or "off"; XDG_CACHE_HOME/retrograd or
                         ~/.cache/retrograd unless told
  RETROGRAD_CACHE_SIZE   how large it may grow, such as "500 MB"; "1 GiB" unless told
"""


def add_cache(commands: Any) -> None:
    """Enter the subcommand into those of the command."""
    parser = commands.add_parser(
        "cache",
        help="show or clear the cache of compiled programs",
        description="The cache of compiled programs. Deleting it costs compiles, nothing else.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "action", nargs="?", default="show", choices=("show", "clear"), help="show unless told"
    )
    parser.set_defaults(run=_run)


def _run(given: argparse.Namespace) -> int:
    held = cache.stats()
    if held.directory is None:
        print("cache: none; it is off, was never used, or its directory cannot be trusted")
    elif given.action == "clear":
        count = cache.clear()
        print(f"cache: deleted {count} {'entry' if count == 1 else 'entries'}")
    else:
        print(f"directory  {held.directory}")
        print(f"entries    {held.entries}")
        print(f"size       {_size(held.bytes)} of {_size(held.limit)}")
    return 0


def _size(n: float) -> str:
    """Bytes for people."""
    for unit in ("bytes", "KiB", "MiB"):
        if n < 1024:
            return f"{n:.0f} {unit}" if unit == "bytes" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.1f} GiB"
