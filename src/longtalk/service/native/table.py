"""All routes of the surface."""

from __future__ import annotations

from typing import Any

from longtalk.service.native import (
    account,
    branches,
    brief,
    conversations,
    costs,
    estimate,
    inspection,
    marks,
    profile,
    provider_keys,
    simulation,
    turns,
)
from longtalk.service.native.routes import Route

ROUTES: tuple[Route[Any, Any], ...] = (
    *account.ROUTES,
    *provider_keys.ROUTES,
    *conversations.ROUTES,
    *branches.ROUTES,
    *turns.ROUTES,
    *estimate.ROUTES,
    *inspection.ROUTES,
    *costs.ROUTES,
    *marks.ROUTES,
    *brief.ROUTES,
    *profile.ROUTES,
    *simulation.ROUTES,
)
