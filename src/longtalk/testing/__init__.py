"""Tools for testing applications and extensions: a scripted provider, and a request validator for each wire.

The conformance suites are in `testing.stores` and `testing.providers`, and the policy checker is in `testing.policies`.
"""

from longtalk._sync.providers.scripted.provider import Scripted
from longtalk.providers.scripted.provider import AsyncScripted
from longtalk.providers.scripted.script import Step, UnexpectedCall, UnusedSteps, says
from longtalk.testing.wires.validate import validate
from longtalk.testing.wires.violation import WireViolation

__all__ = ["AsyncScripted", "Scripted", "Step", "UnexpectedCall", "UnusedSteps", "WireViolation", "says", "validate"]
