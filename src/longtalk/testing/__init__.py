"""For tests, ours and yours: a scripted provider and a validator for each wire."""

from longtalk._sync.providers.scripted import Scripted
from longtalk.providers.script import Step, UnexpectedCall, UnusedSteps, says
from longtalk.providers.scripted import AsyncScripted
from longtalk.testing.validate import WireViolation, validate

__all__ = ["AsyncScripted", "Scripted", "Step", "UnexpectedCall", "UnusedSteps", "WireViolation", "says", "validate"]
