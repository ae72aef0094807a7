"""Optional packages, asked for by name when they are missing."""

from __future__ import annotations

import importlib
from typing import Any

from retrograd.core.errors import ExtraError


def extra(who: str, module: str, name: str) -> Any:
    """An optional module, or an error that says how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".", maxsplit=1)[0]
        raise ExtraError(
            f"{who}: needs the package {package}, which is not installed",
            hint=f"pip install 'retrograd[{name}]'",
        ) from error
