"""What the service keeps beside conversations: documents (keys, runs, claims, counters) and event logs of runs."""
