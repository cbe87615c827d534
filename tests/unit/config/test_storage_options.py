"""Time-outs where the user sets none, under the names and in the spellings that delta-rs takes."""

from __future__ import annotations

import pytest

from ingestor.delta.storage import with_defaults

DEFAULTS = {
    "connect_timeout": "5s",
    "timeout": "15s",
    "max_retries": "5",
    "retry_timeout": "10s",
    "backoff_config.init_backoff": "100ms",
    "backoff_config.max_backoff": "2s",
}


def test_whoever_sets_none_gets_ours() -> None:
    """Beside all that they do set."""
    assert with_defaults({"AWS_REGION": "eu-central-1"}, {}) == {**DEFAULTS, "AWS_REGION": "eu-central-1"}


@pytest.mark.parametrize("name", ["timeout", "TIMEOUT", "Timeout", "aws_timeout", "AWS_TIMEOUT", "azure_timeout"])
def test_the_user_s_time_out_wins(name: str) -> None:
    """However it is spelled: delta-rs takes each of these, and of two it would take any."""
    expected = {key: value for key, value in DEFAULTS.items() if key != "timeout"} | {name: "1m"}
    assert with_defaults({name: "1m"}, {}) == expected


@pytest.mark.parametrize("name", ["TIMEOUT", "AWS_TIMEOUT", "GOOGLE_TIMEOUT"])
def test_the_environment_s_time_out_wins(name: str) -> None:
    """delta-rs looks there too, but options count more: so there must be none."""
    assert "timeout" not in with_defaults({}, {name: "1m", "PATH": "/bin"})


@pytest.mark.parametrize("name", ["max_retries", "MAX_RETRIES", "Max_Retries"])
def test_the_user_s_retries_win(name: str) -> None:
    """delta-rs ignores all but lower case, without a word."""
    assert with_defaults({name: "9"}, {}) == {**DEFAULTS, "max_retries": "9"}


@pytest.mark.parametrize("name", ["init_backoff", "backoff.init_backoff", "BACKOFF_CONFIG.INIT_BACKOFF"])
def test_of_two_names_for_the_same_only_one_is_passed_on(name: str) -> None:
    """Else it would be left to chance which counts."""
    assert with_defaults({name: "1s"}, {}) == {**DEFAULTS, "backoff_config.init_backoff": "1s"}
