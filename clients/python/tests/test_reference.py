"""docs/python.md names each class of the package, each of its public methods, and each option."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import redis_dlock
from redis_dlock import _base, compat, locks

PAGE = (Path(__file__).parents[3] / "docs" / "python.md").read_text()
REFERENCE = PAGE.partition("\n## Reference\n")[2]
ERRORS = PAGE.partition("\n## Errors\n")[2].partition("\n## ")[0]


def names_in(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def public(kind: type) -> set[str]:
    return {name for name, value in inspect.getmembers(kind) if not name.startswith("_")
            and (callable(value) or isinstance(value, property)) and name not in dir(Exception)}


def row_of(kind: type) -> str:
    rows = [line.split("|", 2) for line in REFERENCE.splitlines() if line.startswith("| ")]
    return next(cells for _, names, cells in rows if f"`{kind.__name__}`" in names)


def test_each_class_is_named():
    assert set(redis_dlock.__all__) <= names_in(PAGE)
    errors = {name for name in redis_dlock.__all__ if issubclass(getattr(redis_dlock, name), Exception)}
    assert errors <= names_in(ERRORS)


@pytest.mark.parametrize("name", [
    name for name in redis_dlock.__all__ if not issubclass(getattr(redis_dlock, name), Exception)])
def test_each_method_is_in_the_row_of_its_class(name):
    kind = getattr(redis_dlock, name)
    missing = public(kind) - names_in(row_of(kind)) - {"of"}  # Leader.of reads a reply: not for users
    assert not missing, f"docs/python.md, Reference, {name}: {missing}"


def test_each_field_of_a_hold_is_in_its_row():
    assert public(locks.Lost) | {"lost"} <= names_in(row_of(locks.Hold))


def test_each_option_and_setting_is_named():
    options = set(_base.Options.__annotations__)
    assert options <= names_in(next(line for line in REFERENCE.splitlines() if line.startswith("| options")))
    settings = set(inspect.signature(redis_dlock.DLock).parameters)
    assert settings <= names_in(PAGE)


def test_what_compat_adds_is_named():
    from redis.lock import Lock

    added = public(compat.Lock) - public(Lock)
    assert added <= names_in(REFERENCE)
