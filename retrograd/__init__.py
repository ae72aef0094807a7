"""Automatic differentiation and a compiler for array programs, in Python you can read."""
import importlib, pkgutil  # noqa
import retrograd.core.protocols  # noqa
from retrograd import ops as _ops, autodiff as _autodiff  # noqa
import retrograd.ops.shape  # noqa
for _room in (_ops, _autodiff):
    for _m in pkgutil.iter_modules(_room.__path__):
        try:
            importlib.import_module(f"{_room.__name__}.{_m.name}")
        except (ImportError, AttributeError) as _e:  # temporary, while ops are being written side by side
            print("temporarily skipped", _m.name, _e)
import retrograd.control.scan  # noqa
from retrograd.core.op import FUNCTIONS as _F  # noqa
globals().update(_F)
