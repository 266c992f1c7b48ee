"""Observations: reports of turns, model calls, tool runs, compactions and retries, for logs, metrics and traces."""

from longtalk.observation.observer import INTERRUPTED as INTERRUPTED
from longtalk.observation.observer import Observation as Observation
from longtalk.observation.observer import ObservedMessage as ObservedMessage
from longtalk.observation.observer import Observer as Observer
from longtalk.observation.observer import OnEvent as OnEvent
from longtalk.observation.observer import StepContent as StepContent
from longtalk.observation.observer import check_on_event as check_on_event
from longtalk.observation.observer import join_observers as join_observers
from longtalk.observation.observer import log_and_suppress as log_and_suppress
from longtalk.observation.observer import log_suppressed as log_suppressed
from longtalk.observation.observer import logger as logger
from longtalk.observation.observer import name_error as name_error
