"""One break of the code, as `tests.mutants` tries it."""

from __future__ import annotations

from dataclasses import dataclass

_PACKAGES = ("ingestor/", "spark_jobs/")


@dataclass(frozen=True, slots=True)
class Mutant:
    """`old` stands exactly once in the file and becomes `new`; one of `tests` must fail then."""

    name: str
    file: str  # a path that begins with its package; without one it is the ingestor's
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def path(self) -> str:
        """Return the file as the repository has it."""
        return self.file if self.file.startswith(_PACKAGES) else f"ingestor/{self.file}"
