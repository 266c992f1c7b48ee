"""Simulation: compute what a recorded conversation would have cost under other policies and with other models."""

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
