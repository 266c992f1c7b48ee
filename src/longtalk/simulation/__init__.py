"""Simulate what a conversation would have cost under each policy, at each model's prices."""

from longtalk.simulation.compare import (
    POLICIES,
    SimulatedCall,
    SimulatedRun,
    placeholder_summary,
    simulate,
    transcript_of,
)
from longtalk.simulation.inputs import SimulatedModel
from longtalk.simulation.optimum import OPTIMUM

__all__ = [
    "OPTIMUM",
    "POLICIES",
    "SimulatedCall",
    "SimulatedModel",
    "SimulatedRun",
    "placeholder_summary",
    "simulate",
    "transcript_of",
]
