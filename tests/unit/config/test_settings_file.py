from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingestor.config.file import read
from ingestor.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def reading(folder: Path, text: str, **environ: str) -> dict[str, object]:
    file = folder / "ingestor.yaml"
    file.write_text(text, encoding="utf-8")
    return read(file, environ)


def refusal(folder: Path, text: str, **environ: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        reading(folder, text, **environ)
    assert caught.value.message.startswith(str(folder / "ingestor.yaml"))
    assert caught.value.__context__ is None
    return caught.value


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("a${X}c", "abc"),
        ("${X}${X}", "bb"),
        ("${NOT:-d}", "d"),
        ("${NOT:-}", ""),
        ("${EMPTY:-d}", "d"),
        ("${EMPTY}", ""),
        ("${NOT:-a:b-c}", "a:b-c"),
        ("$${X}", "${X}"),
        ("$X $ {X}", "$X $ {X}"),
        ("${RECURSIVE}", "${X}"),
    ],
)
def test_variables_are_replaced_in_text(tmp_path: Path, written: str, expected: str) -> None:
    found = reading(tmp_path, f"a: ['{written}']", X="b", EMPTY="", RECURSIVE="${X}")

    assert found == {"a": [expected]}


def test_what_a_variable_holds_can_not_change_the_structure(tmp_path: Path) -> None:
    secret = "a: b # c\n- [d"

    assert reading(tmp_path, "kafka:\n  password: ${P}", P=secret) == {"kafka": {"password": secret}}


def test_an_unset_variable_is_refused_by_name_and_key(tmp_path: Path) -> None:
    error = refusal(tmp_path, "kafka:\n  sasl.password: x${PASSWORD}\nb: ['${OTHER}']")

    assert "kafka.sasl.password: environment variable PASSWORD is not set" in error.message
    assert "b.0: environment variable OTHER is not set" in error.message
    assert "${PASSWORD:-default}" in error.hint


@pytest.mark.parametrize("written", ["${", "${}", "${a b}", "${1}", "x${A"])
def test_a_broken_variable_is_refused(tmp_path: Path, written: str) -> None:
    assert "a: has a ${ without" in refusal(tmp_path, f"a: '{written}'", A="1").message


def test_keys_are_not_expanded(tmp_path: Path) -> None:
    assert reading(tmp_path, "a: {'${X}': 1}", X="b") == {"a": {"${X}": 1}}


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("0123", "0123"),
        ("1_000", "1_000"),
        ("1e3", "1e3"),
        ("1.10", "1.10"),
        ("0x1F", "0x1F"),
        ("12:30:45", "12:30:45"),
        ("2026-01-31", "2026-01-31"),
        ("'5'", "5"),
    ],
)
def test_numbers_for_other_libraries_stay_as_they_are_written(tmp_path: Path, written: str, text: str) -> None:
    found = reading(tmp_path, f"kafka: {{x: {written}}}\nstorage_options: {{x: {written}}}")

    assert found == {"kafka": {"x": text}, "storage_options": {"x": text}}


def test_a_key_that_stands_twice_is_refused_with_both_lines(tmp_path: Path) -> None:
    error = refusal(tmp_path, "a:\n  b: 1\n  c: 2\n  b: 3\n")

    assert "a.b: is there twice, in line 2 and in line 4" in error.message


def test_anchors_and_merges_work(tmp_path: Path) -> None:
    text = "a: &base {x: 1, y: 2}\nb: {<<: *base, y: 3}"

    assert reading(tmp_path, text) == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}}


def test_a_key_may_be_called_null(tmp_path: Path) -> None:
    """As `parse.NAME.csv.null` is: YAML reads it as nothing. Elsewhere it is an unknown key like any other."""
    assert reading(tmp_path, "csv: {null: NA, quote: null}") == {"csv": {"null": "NA", "quote": None}}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("# nothing", "is empty"),
        ("- a", "is not a mapping"),
        ("a: [1", "line 1"),
        ("a: 1\n b: 2", "line 2"),
        ("--- {a: 1}\n--- {b: 2}", "line 2"),
        ("a: \x07", "characters that YAML does not allow"),
        ("a: 2026-13-45", "a number or a time that can't exist"),
        ("a: !!python/object:os.system x", "line 1"),
        ("a: !!binary aGk=", "a: is of a YAML type that no setting has"),
        ("a: !!set {b}", "a: is of a YAML type that no setting has"),
        ("a: {on: 1}", "a.True: is a key that is not text"),
        ("1: x", "1: is a key that is not text"),
        ("a: &x [*x]", "is nested too deeply"),
        ("a: " + "[" * 5_000 + "]" * 5_000, "is nested too deeply"),
        ("a: {? [b] : c}", "line 1"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, text: str, says: str) -> None:
    assert says in refusal(tmp_path, text).message


@pytest.mark.parametrize(
    "text",
    [
        "kafka:\n  sasl.password: *hunter2\n",
        "kafka:\n  sasl.password: !hunter2 x\n",
        "kafka:\n  sasl.password: '${hunter2'\n",
        "kafka:\n  sasl.password: %hunter2\n",
        "kafka:\n  sasl.password: hunter2: x\n",
    ],
)
def test_a_syntax_error_never_shows_a_secret(tmp_path: Path, text: str) -> None:
    assert "hunter2" not in str(refusal(tmp_path, text))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be read: No such file"):
        read(tmp_path / "missing.yaml", {})


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be read: Is a directory"):
        read(tmp_path, {})


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "ingestor.yaml"
    file.write_bytes(b"a: \xff")

    with pytest.raises(ConfigError, match="byte 3 is not UTF-8"):
        read(file, {})


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    assert reading(tmp_path, "\ufeffa: 1") == {"a": 1}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text() | st.text(alphabet="a:{}[]&*!-?|>'\"#%@$<, \n1.e~_"))
def test_any_text_is_read_or_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "ingestor.yaml"
    file.write_text(text, encoding="utf-8", newline="")

    try:
        read(file, {})
    except ConfigError as error:
        assert error.exit_code == 2  # noqa: PT017 - reading is fine too
