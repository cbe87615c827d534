"""Reads a configuration file: parses the YAML, then fills in the environment. It does not interpret keys.

The environment is filled in after parsing, so that a password with a `#` or a `: ` can't change the structure.
No message quotes the file, since the quoted part may be a secret.
"""

from __future__ import annotations

import os
import re
from datetime import date
from typing import TYPE_CHECKING

import yaml

from ingestor.config.problems import Problem, as_error
from ingestor.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

VERBATIM = ("kafka", "storage_options")  # passed to other libraries as written
_DEPTH_MAX = 20
_NODES_MAX = 100_000  # aliases of aliases grow without end
_STR = "tag:yaml.org,2002:str"
_RETYPED = {f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "timestamp")}
_VARIABLE = re.compile(r"\$\$\{|\$\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\})?")
_SYNTAX_HINT = "correct the YAML there (a value with special characters needs quotes)"


def read(path: Path, environ: Mapping[str, str] | None = None) -> dict[str, object]:
    """Return the file as plain values with the environment filled in, or raise ConfigError."""
    return parse(_text(path), path, os.environ if environ is None else environ)


def parse(text: str, path: Path, environ: Mapping[str, str]) -> dict[str, object]:
    """Return what `read` returns if the file holds this text."""
    return expand(_parse(text, path), path, environ)


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        message = f"{path}: can't be read: {error.strerror or type(error).__name__}"
        raise ConfigError(message, hint="give the path of the configuration file") from None
    except UnicodeDecodeError as error:
        message = f"{path}: byte {error.start} is not UTF-8"
        raise ConfigError(message, hint="save the file as UTF-8") from None


def _parse(text: str, path: Path) -> object:
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is None:
            raise ConfigError(f"{path}: is empty", hint="see README.md for a first one")
        problems = list(_duplicates(root))
        if problems:
            raise as_error(str(path), problems)
        _keep_verbatim(root)
        return loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        where = error.problem_mark or error.context_mark
        line = f"line {where.line + 1}, column {where.column + 1}: " if where else ""
        message = f"{path}: {line}{_without_quotes(error.problem or error.context or 'bad YAML')}"
    except yaml.YAMLError:
        message = f"{path}: holds characters that YAML does not allow"
    except (ValueError, OverflowError, TypeError):
        message = f"{path}: holds a number or a time that can't exist"
    except RecursionError:
        message = f"{path}: is nested too deeply"
    # Raised outside the handlers: the original error quotes the file and must not become the context.
    raise ConfigError(message, hint=_SYNTAX_HINT)


def _without_quotes(problem: str) -> str:
    return re.sub(r"'[^']{2,}'|\"[^\"]{2,}\"", "…", problem)


def _duplicates(root: yaml.Node) -> Iterator[Problem]:
    """Find duplicate keys; YAML would silently keep the last."""
    waiting: list[tuple[yaml.Node, str]] = [(root, "")]
    seen: set[int] = set()
    while waiting:
        node, key = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += [(item, f"{key}.{n}") for n, item in enumerate(node.value)]
        elif isinstance(node, yaml.MappingNode):
            lines: dict[str, int] = {}
            for name, value in node.value:
                if not isinstance(name, yaml.ScalarNode):
                    continue
                dotted, line = f"{key}.{name.value}".lstrip("."), name.start_mark.line + 1
                if name.value in lines:
                    what = f"is there twice, in line {lines[name.value]} and in line {line}"
                    yield Problem(dotted, what, "keep one of them")
                lines[name.value] = line
                waiting.append((value, dotted))


def _keep_verbatim(root: yaml.Node) -> None:
    """Keep numbers as text for other libraries: a password 0123 must not become 83."""
    if not isinstance(root, yaml.MappingNode):
        return
    for name, section in root.value:
        if name.value in VERBATIM and isinstance(section, yaml.MappingNode):
            for _, value in section.value:
                if isinstance(value, yaml.ScalarNode) and value.tag in _RETYPED:
                    value.tag = _STR


def expand(document: object, path: Path, environ: Mapping[str, str]) -> dict[str, object]:
    """Return the document with `${VAR}` and `${VAR:-default}` replaced in all its values."""
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: is not a mapping of keys to values", hint="start with app_id: NAME")
    expander = _Expander(environ)
    expanded = {str(key): expander.value(value, str(key), 1) for key, value in document.items()}
    expander.check_keys(document, "")
    if expander.problems:
        raise as_error(str(path), expander.problems)
    return expanded


class _Expander:
    """Walks through a document once and collects its problems."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.problems: list[Problem] = []
        self._environ = environ
        self._nodes = 0

    def value(self, value: object, key: str, depth: int) -> object:
        self._nodes += 1
        if depth > _DEPTH_MAX or self._nodes > _NODES_MAX:
            if self._nodes <= _NODES_MAX + 1:
                self._nodes = _NODES_MAX + 1
                self.problems.append(Problem(key, "is nested too deeply", "write it flatter"))
            return None
        if isinstance(value, str):
            return self._text(value, key)
        if isinstance(value, dict):
            value = {"null" if k is None else k: v for k, v in value.items()}  # the key parse.NAME.csv.null
            self.check_keys(value, f"{key}.")
            return {str(k): self.value(v, f"{key}.{k}", depth + 1) for k, v in value.items()}
        if isinstance(value, list):
            return [self.value(item, f"{key}.{n}", depth + 1) for n, item in enumerate(value)]
        if value is not None and not isinstance(value, bool | int | float | date):
            what = "is of a YAML type that no setting has"
            self.problems.append(Problem(key, what, "write text, a number, a list or a mapping"))
        return value

    def check_keys(self, mapping: Mapping[object, object], prefix: str) -> None:
        """Require keys to be text; YAML reads an unquoted `on` or `2024-01-01` as another type."""
        for key in mapping:
            if not isinstance(key, str):
                problem = Problem(f"{prefix}{key}", "is a key that is not text", "put it in quotes")
                self.problems.append(problem)

    def _text(self, text: str, key: str) -> str:
        def replace(match: re.Match[str]) -> str:
            if match[0] == "$${":
                return "${"
            name, default = match["name"], match["default"]
            if name is None:
                hint = "write ${NAME} or ${NAME:-default}; a literal ${ is written $${"
                self.problems.append(Problem(key, "has a ${ without a name and a }", hint))
                return ""
            found = self._environ.get(name)
            if default is not None:  # empty counts as unset, as in a shell
                return found or default
            if found is None:
                hint = f"set it, or write ${{{name}:-default}}"
                self.problems.append(Problem(key, f"environment variable {name} is not set", hint))
            return found or ""

        return _VARIABLE.sub(replace, text)
