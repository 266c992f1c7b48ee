"""Facts about models: names, context windows, limits, capabilities and prices."""

from longtalk.models.call_cost import Cost, Prices, Rates, Tier, cost
from longtalk.models.registry import Model, Provider, find, models, providers, register

__all__ = ["Cost", "Model", "Prices", "Provider", "Rates", "Tier", "cost", "find", "models", "providers", "register"]
