"""Values in a file while they are not needed: one file for each call in flight.

The file is unlinked as soon as it is open, so that nothing stays behind; its bytes are
reserved before the program runs, so that a full disk is found when all values still are where
they were. What the system keeps of it in its page cache is not counted: it gives that memory
back to whoever asks.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections import deque
from typing import Any

from retrograd.core.errors import ArgumentError, BudgetError
from retrograd.memory.sizes import shown

__all__ = ["SpillFile", "SpillFiles", "directory_of"]


def directory_of(who: str, spill: Any) -> str | None:
    """Where files go: the system's place for True, a directory, or None for False."""
    if spill is None or spill is False:
        return None
    place = tempfile.gettempdir() if spill is True else os.fspath(spill)
    if not os.path.isdir(place):
        raise ArgumentError(f"{who}: spill is True or a directory; {place!r} is none")
    return place


class SpillFile:
    """Bytes in an unlinked file."""

    def __init__(self, directory: str, nbytes: int) -> None:
        try:
            self.handle, name = tempfile.mkstemp(prefix="retrograd-spill-", dir=directory)
            os.unlink(name)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self.handle, 0, max(nbytes, 1))
            else:
                os.ftruncate(self.handle, nbytes)
        except OSError as error:
            self.close()
            raise BudgetError(
                f"spill: {directory} does not take a file of {shown(nbytes)} "
                f"({error.strerror}); nothing ran, all values are where they were",
                hint="spill='/another/directory', or a larger budget",
            ) from error

    def write(self, address: int, nbytes: int, at: int) -> None:
        """Memory to the file."""
        view = memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B")
        while view:
            done = os.pwrite(self.handle, view, at)
            view, at = view[done:], at + done

    def read(self, address: int, nbytes: int, at: int) -> None:
        """The file to memory."""
        view = memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B")
        while view:
            done = os.preadv(self.handle, [view], at)
            if not done:
                raise OSError("spill: the file is shorter than what was written to it")
            view, at = view[done:], at + done

    def expect(self, nbytes: int, at: int) -> None:
        """Let the system read ahead what will be asked for soon."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self.handle, at, nbytes, os.POSIX_FADV_WILLNEED)

    def close(self) -> None:
        """Give the bytes back."""
        handle, self.handle = getattr(self, "handle", -1), -1
        if handle >= 0:
            os.close(handle)

    __del__ = close


class SpillFiles:
    """Files of one size, for calls in flight: each takes one and gives it back."""

    def __init__(self, directory: str, nbytes: int) -> None:
        self.directory, self.nbytes = directory, nbytes
        self._waiting: deque[SpillFile] = deque(maxlen=4)

    def take(self) -> SpillFile:
        """A file that nobody else has."""
        try:
            return self._waiting.pop()
        except IndexError:
            return SpillFile(self.directory, self.nbytes)

    def give(self, file: SpillFile) -> None:
        """Back, for the next call."""
        self._waiting.append(file)
