"""How a stored conversation is held, and what its turns have sent: reading both, and going on in the same way."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

from longtalk.archive.archive import AsyncArchive
from longtalk.branches.branch import AsyncBranch
from longtalk.errors import InputError, NotFound
from longtalk.observation import OnEvent
from longtalk.policies import KeepAll, Policy
from longtalk.providers.base import AsyncProvider
from longtalk.stores.base import MAIN, Store
from longtalk.tokens import Counter

if TYPE_CHECKING:
    from longtalk.branches.rebuild import SentRequest
    from longtalk.branches.settings import Settings

Self = TypeVar("Self", bound="AsyncRemembered")


class ConnectionArguments(TypedDict, total=False):
    """The arguments of a conversation that are given with each start of a program, as for `AsyncConversation`."""

    create: bool
    private: bool | None
    tools: Iterable[Any]
    counter: Counter | None
    window: int | None
    base_url: str | None
    api_key: str | None
    client: Any
    timeout: float | None
    max_retries: int
    on_event: OnEvent | None
    keep_preamble: bool


class AsyncRemembered:
    """The methods of a conversation that read how it is held, and what was sent."""

    _stored: AsyncBranch
    _archive: AsyncArchive

    @classmethod
    async def open(
        cls: type[Self],
        id: str,  # noqa: A002
        *,
        owner: str = "",
        store: Store | None = None,
        branch: str = MAIN,
        model: str | AsyncProvider | None = None,
        policy: Policy | None = None,
        options: Mapping[str, Any] | None = None,
        **more: Unpack[ConnectionArguments],
    ) -> Self:
        """Return a stored conversation that goes on as it was last held.

        Model, policy and options are those of the last turn unless they are given; its options are used for the same
        model only. Raises `InputError` if they are needed and can't be restored. The system text is given with each
        turn, as ever: that of the last turn is `(await talk.settings()).system`.
        """
        archive = AsyncArchive(store, owner=owner)
        settings: Settings | None = None
        with contextlib.suppress(NotFound):
            settings = await archive.settings(id, branch=branch)
        if model is None:
            if settings is None:
                raise InputError(f"No model is stored for conversation {id!r}: pass model=.")
            if settings.own_address and more.get("base_url") is None and more.get("client") is None:
                raise InputError(
                    f"Conversation {id!r} was held with {settings.model} at an address that is not stored: pass "
                    "base_url= or client= again, or another model=."
                )
            model = settings.model
        if policy is None:
            policy = KeepAll() if settings is None else settings.policy
            if policy is None and settings is not None:
                raise InputError(f"The policy {settings.policy_text} can't be restored: pass policy=.")
        if options is None and settings is not None and getattr(model, "label", model) == settings.model:
            options = settings.options
        given: Any = {"model": model, "policy": policy, "options": options, **more}
        return cls(id, owner=owner, store=archive.store, branch=branch, **given)  # type: ignore[call-arg]

    async def settings(self) -> Settings | None:
        """Return model, options, policy, system text and tools of this branch's last turn; None if not stored."""
        if await self._stored.head() is None:
            return None
        return await self._archive.settings(self._stored.conversation, branch=self._stored.branch)

    async def request(self, turn: str) -> list[SentRequest]:
        """Return what a turn has sent, one request per model call: the exact bytes, or why they can't be rebuilt."""
        return await self._archive.request(self._stored.conversation, turn, branch=self._stored.branch)
