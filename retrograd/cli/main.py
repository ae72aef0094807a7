"""The command `retrograd` and its subcommands."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import retrograd
from retrograd.cli.cache import add_cache
from retrograd.core.errors import RetrogradError

__all__ = ["main"]

_EXAMPLES = """\
examples:
  retrograd cache                             what the cache of compiled programs holds
  retrograd cache clear                       empty it
  RETROGRAD_CACHE=off python train.py         run without it
"""


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line; its exit status."""
    parser = _parser()
    given = parser.parse_args(words)
    try:
        return given.run(given)
    except RetrogradError as error:
        print(f"retrograd: {error.message}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="retrograd",
        description="Automatic differentiation and a compiler for array programs.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=retrograd.__version__)
    commands = parser.add_subparsers(metavar="command", required=True)
    add_cache(commands)
    return parser
