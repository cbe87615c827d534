"""Payloads that look like events: JSON of one exact size, half words and half what does not repeat.

No payload comes twice, as in topics of events, which carry ids and times. With `BENCH_POOL=5000` in the environment, or
`--pool 5000`, so many are made and come again and again in random order, as states and heartbeats do.
"""

from __future__ import annotations

import itertools
import os
import random
import string
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

POOL = "BENCH_POOL"
_EVENTS = ("page_view", "add_to_cart", "checkout", "search", "sign_in")
_PAIR_CHARS_MIN = 13  # a word and a number, each with a space


def endless(size: int) -> Iterator[bytes]:
    """Yield JSON objects of `size` bytes each; the same ones every time."""
    fresh = _fresh(size)
    distinct = int(os.environ.get(POOL) or 0)
    if not distinct:
        return fresh
    pool, rng = list(itertools.islice(fresh, distinct)), random.Random(size)
    return (rng.choice(pool) for _ in itertools.repeat(None))


def payloads(size: int, count: int) -> list[bytes]:
    """Return so many of them."""
    return list(itertools.islice(endless(size), count))


def _fresh(size: int) -> Iterator[bytes]:
    rng = random.Random(size)
    words = ["".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 9))) for _ in range(200)]
    while True:
        head = f'{{"user_id":{rng.getrandbits(24)},"event_type":"{rng.choice(_EVENTS)}",'
        head += f'"amount":{rng.uniform(1, 999):.2f},"note":"'
        room = size - len(head) - len('"}')
        pairs = room // _PAIR_CHARS_MIN + 1
        digits = rng.randbytes(4 * pairs).hex()
        chosen = rng.choices(words, k=pairs)
        note = " ".join([f"{word} {digits[8 * at : 8 * at + 8]}" for at, word in enumerate(chosen)])
        yield f'{head}{note[:room]}"}}'.encode()
