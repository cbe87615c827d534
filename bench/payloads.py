"""Payloads that look like events: JSON of one exact size, all distinct, half words and half what does not repeat."""

from __future__ import annotations

import random
import string

DISTINCT = 5_000
_EVENTS = ("page_view", "add_to_cart", "checkout", "search", "sign_in")


def payloads(size: int, distinct: int = DISTINCT) -> list[bytes]:
    """Return distinct JSON objects of `size` bytes each; the same ones every time."""
    rng = random.Random(size)
    words = ["".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 9))) for _ in range(200)]
    return [_payload(number, size, rng, words) for number in range(distinct)]


def _payload(number: int, size: int, rng: random.Random, words: list[str]) -> bytes:
    head = f'{{"user_id":{number},"event_type":"{rng.choice(_EVENTS)}","amount":{rng.uniform(1, 999):.2f},"note":"'
    room = size - len(head) - len('"}')
    note: list[str] = []
    while len(note) * 6 < room:  # a word and a number with their spaces are 13 characters at the least; cut below
        note += [rng.choice(words), f"{rng.getrandbits(32):08x}"]
    return f'{head}{" ".join(note)[:room]}"}}'.encode()
