"""The balance: where every raw row went."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from ingestor.errors import DataLossError


@dataclass(frozen=True, slots=True)
class Balance:
    """The number of raw rows, and of each of the four outcomes; each is counted separately."""

    raw: int = 0
    silver: int = 0
    quarantine: int = 0
    duplicates: int = 0
    tombstones: int = 0

    def __add__(self, other: Balance) -> Balance:
        """Return the sum of two balances."""
        return Balance(*(mine + theirs for mine, theirs in zip(self._numbers, other._numbers, strict=True)))

    @property
    def _numbers(self) -> tuple[int, ...]:
        return (self.raw, self.silver, self.quarantine, self.duplicates, self.tombstones)

    @property
    def even(self) -> bool:
        """Return whether every raw row has exactly one outcome."""
        return self.raw == sum(self._numbers[1:])

    def to_json(self) -> str:
        """Return the balance as one line of JSON."""
        return json.dumps(asdict(self))

    def require_even(self, what: str) -> None:
        """Raise if the balance does not add up."""
        if not self.even:
            hint = "keep tables and checkpoint as they are until the cause is found; the next run does not repair it"
            raise DataLossError(f"{what}: the balance does not add up: {self.to_json()}", hint=hint)
