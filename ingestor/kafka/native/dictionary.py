"""Values that come again and again are held once, and rows have their numbers: `dictionary.c`."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ingestor.kafka.native.library import DictionaryHead, load

if TYPE_CHECKING:
    import numpy.typing as npt

    from ingestor.kafka.native.library import Native

_NOTHING = pa.py_buffer(b"\0")  # stands in for a buffer without bytes, which may have no address
_START_BYTES = 4
_VALUE_BYTES = 20  # of each value beside its own: where it starts, its hash, two slots


class Dictionary:
    """The distinct values of a binary column, in the order in which they came first."""

    def __init__(self, native: Native) -> None:
        """Be empty. The secret changes no number; it keeps whoever sends records from choosing ones that are slow."""
        self._native = native
        self._address: int | None = native.dictionary_new(secrets.randbits(64))
        if not self._address:
            raise MemoryError
        self._head = DictionaryHead.from_address(self._address)
        self._ended = False

    def __len__(self) -> int:
        return self._head.values

    @property
    def nbytes(self) -> int:
        """Return what the values take, and what they are found by."""
        return self._head.bytes + _VALUE_BYTES * self._head.values

    def add(self, values: pa.Array) -> npt.NDArray[np.int32]:
        """Return the number of each value, -1 for a null."""
        if self._ended or values.type != pa.binary():
            msg = f"a dictionary takes binary values, not {values.type}, and only until somebody has its own"
            raise TypeError(msg)
        valid, starts, data = values.buffers()
        numbers = np.empty(len(values), np.int32)
        done = self._native.dictionary_add(
            self._address,
            (starts or _NOTHING).address,
            (data or _NOTHING).address,
            valid.address if valid is not None and values.null_count else None,
            values.offset,
            len(values),
            numbers.ctypes.data,
        )
        if not done:
            self._ended = True
            raise MemoryError
        return numbers

    def values(self) -> pa.Array:
        """Return all values, on the dictionary's own memory: so nothing can be added any more."""
        self._ended = True
        starts = pa.foreign_buffer(self._head.starts, _START_BYTES * (len(self) + 1), base=self)
        data = pa.foreign_buffer(self._head.data, self._head.bytes, base=self)
        return pa.Array.from_buffers(pa.binary(), len(self), [None, starts, data], null_count=0)

    def __del__(self) -> None:
        """Give the memory back."""
        self._native.dictionary_free(self._address)


def available() -> bool:
    """Tell whether there may be dictionaries: only where the native library is, and is not switched off."""
    return load()[0] is not None


def new_dictionary() -> Dictionary:
    """Return an empty dictionary, where they are available."""
    native, why_not = load()
    if native is None:
        raise RuntimeError(why_not)
    return Dictionary(native)
