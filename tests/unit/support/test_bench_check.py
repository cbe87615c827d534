"""The gate against getting slower: what it lets through and what not."""

from __future__ import annotations

import json

from bench.check import BASELINE, worse


def test_a_ratio_may_grow_by_so_much_and_no_more() -> None:
    """15 % either way is what a machine does by itself."""
    baseline = {"drain": 2.0, "commit": 1.0}
    assert worse({"drain": 2.29, "commit": 0.5}, baseline) == []
    assert worse({"drain": 2.31, "commit": 1.0}, baseline) == ["drain"]


def test_the_stored_baseline_is_of_ratios() -> None:
    """Every one of them is there, and none is a leftover."""
    stored = json.loads(BASELINE.read_text())
    assert len(stored) == 7
    assert all(isinstance(ratio, float) and 0 < ratio < 10 for ratio in stored.values())
