"""Values that come again and again are held once, and rows have their numbers: `dictionary.c`."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ingestor.native.library import DictionaryHead, load

if TYPE_CHECKING:
    import numpy.typing as npt

    from ingestor.native.library import Native

_NOTHING = pa.py_buffer(b"\0")  # stands in for a buffer without bytes, which may have no address
_NUMBER_BYTES = 4


class Dictionary:
    """The distinct values of a binary column, in the order in which they came first."""

    def __init__(self, native: Native) -> None:
        """Be empty. The secret changes no number; it keeps whoever sends records from choosing ones that are slow."""
        self._native = native
        self._address: int | None = native.dictionary_new(secrets.randbits(64))
        if not self._address:
            raise MemoryError
        self._head = DictionaryHead.from_address(self._address)

    def __len__(self) -> int:
        return self._head.values

    @property
    def nbytes(self) -> int:
        """Return the bytes of the values, and of where they start."""
        return self._head.bytes + _NUMBER_BYTES * self._head.values

    def add(self, values: pa.Array) -> npt.NDArray[np.int32]:
        """Return the number of each value, -1 for a null."""
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
            raise MemoryError
        return numbers

    def values(self) -> pa.Array:
        """Return all values; nothing may be added as long as somebody has them."""
        starts = pa.foreign_buffer(self._head.starts, _NUMBER_BYTES * (len(self) + 1), base=self)
        data = pa.foreign_buffer(self._head.data, self._head.bytes, base=self)
        return pa.Array.from_buffers(pa.binary(), len(self), [None, starts, data], null_count=0)

    def __del__(self) -> None:
        """Give the memory back."""
        self._native.dictionary_free(self._address)


def available() -> bool:
    """Tell whether there may be dictionaries: not where this package was built without a C compiler."""
    return load()[0] is not None


def new_dictionary() -> Dictionary:
    """Return an empty dictionary, where they are available."""
    native, why_not = load()
    if native is None:
        raise RuntimeError(why_not)
    return Dictionary(native)
