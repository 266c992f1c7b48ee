"""Values from installed packages, found by their entry points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, overload

from longtalk.errors import InputError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")
D = TypeVar("D")


class Plugins(dict[str, T]):
    """The library's own values by name, and the values that installed packages offer in a group of entry points.

    The entry points are read once, when a name is looked up that the library does not have. A package is imported when
    its value is first used. Then `check` returns the value, or raises `InputError` if it can't be used under this name.
    """

    def __init__(self, own: Mapping[str, T], group: str, check: Callable[[str, Any], T]) -> None:
        super().__init__(own)
        self._group = group
        self._check = check

    def __missing__(self, name: str) -> T:
        offers = self._offers.get(name)
        if not offers:
            raise KeyError(name)
        values = sorted({offer.value for offer in offers})
        if len(values) > 1:
            raise InputError(
                f"Two packages offer {name!r} in {self._group}, as {' and '.join(values)}: uninstall one of them."
            )
        try:
            value = offers[0].load()
        except Exception as problem:
            raise InputError(
                f"{name!r} can't be loaded from {values[0]!r} in {self._group}: {problem!r}. Fix or uninstall the "
                "package."
            ) from problem
        return self.setdefault(name, self._check(name, value))

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self._offers

    @overload
    def get(self, name: str, default: None = None, /) -> T | None: ...
    @overload
    def get(self, name: str, default: D, /) -> T | D: ...
    def get(self, name: str, default: Any = None, /) -> Any:
        try:
            return self[name]
        except KeyError:
            return default

    def list_names(self) -> list[str]:
        """Return all names: first those of the library, then those that packages offer."""
        return list(dict.fromkeys((*self, *sorted(self._offers))))

    @cached_property
    def _offers(self) -> dict[str, list[EntryPoint]]:
        from importlib.metadata import entry_points

        offers: dict[str, list[EntryPoint]] = {}
        for offer in entry_points(group=self._group):
            offers.setdefault(offer.name, []).append(offer)
        return offers
