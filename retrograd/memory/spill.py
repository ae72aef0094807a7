"""Values in a file while they are not needed: one file for each call in flight, or block.

The file is unlinked as soon as it is open, so that nothing stays behind; its bytes are
reserved before anything is put there, so that a full disk is found when all values still are
where they were. What the system keeps of it in its page cache is not counted: it gives that
memory back to whoever asks.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.core.errors import ArgumentError, BudgetError
from retrograd.memory.sizes import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Filed",
    "Shelf",
    "SpillFile",
    "SpillFiles",
    "directory_of",
    "filed",
    "shelf",
    "solid",
]

_PAGE = 4096  # bytes; what is put into a growing file begins at a multiple of it


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
            self.reserve(0, nbytes)
        except OSError as error:
            self.close()
            raise BudgetError(
                f"spill: {directory} does not take a file of {shown(nbytes)} "
                f"({error.strerror}); nothing ran, all values are where they were",
                hint="spill='/another/directory', or a larger budget",
            ) from error

    def reserve(self, at: int, nbytes: int) -> None:
        """Make sure that the disk has these bytes."""
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self.handle, at, max(nbytes, 1))
        else:
            os.ftruncate(self.handle, at + nbytes)

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
        self._files: weakref.WeakSet[SpillFile] = weakref.WeakSet()
        _ALL.add(self)
        self._waiting: deque[SpillFile] = deque(maxlen=4)

    def take(self) -> SpillFile:
        """A file that nobody else has."""
        try:
            return self._waiting.pop()
        except IndexError:
            file = SpillFile(self.directory, self.nbytes)
            self._files.add(file)
            return file

    def give(self, file: SpillFile) -> None:
        """Back, for the next call."""
        self._waiting.append(file)

    @property
    def held(self) -> int:
        """Bytes of all files."""
        return self.nbytes * len(self._files)


_ALL: weakref.WeakSet[SpillFiles] = weakref.WeakSet()


def filed() -> int:
    """Bytes in files of compiled programs."""
    return sum(files.held for files in list(_ALL))


class Shelf:
    """A file that grows: values come and go in any order."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.held = 0  # bytes of the values that are there
        self._file: SpillFile | None = None
        self._end = 0
        self._holes: list[tuple[int, int]] = []  # (bytes, where), free
        # given back whenever Python frees what was here, in the middle of anything: so only
        # noted then, by one step that cannot be disturbed
        self._returned: deque[tuple[int, int]] = deque()

    def put(self, arrays: Sequence[np.ndarray]) -> Filed:
        """Copies of arrays; if there is no room for them, nothing has changed."""
        while self._returned:
            self._holes.append(self._returned.pop())
        total = -(-sum(a.nbytes for a in arrays) // _PAGE) * _PAGE
        try:
            if self._file is None:
                self._file = SpillFile(self.directory, 0)
            hole = min((h for h in self._holes if h[0] >= total), default=None)
            if hole is None:
                at = self._end
                self._file.reserve(at, total)
            else:
                total, at = hole
            filed = Filed(self._file, arrays, at)
        except OSError as error:
            raise BudgetError(
                f"spill: {self.directory} has no room for {shown(total)} more "
                f"({error.strerror}); all values are where they were",
                hint="spill='/another/directory', or a larger budget",
            ) from error
        if hole is None:
            self._end += total
        else:
            self._holes.remove(hole)
        self.held += total
        weakref.finalize(filed, self._give, (total, at)).atexit = False
        return filed

    def _give(self, hole: tuple[int, int]) -> None:
        self.held -= hole[0]
        self._returned.append(hole)


def shelf(directory: str | None) -> Shelf | None:
    """One in a directory, if there is one."""
    return None if directory is None else Shelf(directory)


class Filed:
    """Arrays in a file; they come back with the same bits and the same strides."""

    __slots__ = ("__weakref__", "at", "file", "forms")

    def __init__(self, file: SpillFile, arrays: Sequence[np.ndarray], at: int) -> None:
        self.file, self.at = file, at
        self.forms = [(a.shape, a.dtype, _order(a)) for a in arrays]
        for a, (_, _, axes) in zip(arrays, self.forms, strict=True):
            whole = a.transpose(axes)
            file.write(whole.ctypes.data, whole.nbytes, at)
            at += whole.nbytes

    def get(self) -> list[np.ndarray]:
        """The arrays, read."""
        at, found = self.at, []
        for shape, dtype, axes in self.forms:
            whole = np.empty([shape[i] for i in axes], dtype)
            self.file.read(whole.ctypes.data, whole.nbytes, at)
            at += whole.nbytes
            found.append(whole.transpose(np.argsort(axes)))
        return found

    def expect(self) -> None:
        """They will be asked for soon."""
        sizes = (np.prod(shape, dtype=int) * dtype.itemsize for shape, dtype, _ in self.forms)
        self.file.expect(int(sum(sizes)), self.at)


def _order(a: np.ndarray) -> list[int]:
    """The axes from the one with the largest strides to the one with the smallest."""
    return sorted(range(a.ndim), key=lambda i: -abs(a.strides[i]))


def solid(a: np.ndarray) -> bool:
    """Whether an array is all of its memory: some order of its axes is the order in memory."""
    return bool(a.nbytes) and a.transpose(_order(a)).flags.c_contiguous
