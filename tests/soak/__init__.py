"""A random driver that uses Longtalk as hostile days do, and stops at the first broken promise.

`python -m tests.soak` plays *worlds*, one after the other. A world has four strict servers, one for each wire, two
stores, and a few conversations in stores and in states. Its seed decides every step, so `--seed N` plays the same
steps again. After each step, `checks` compares what the stores and states have with what was acknowledged.

Steps with real concurrency and servers that fail over (`races`) use conversations of their own, so that their timing
does not change the other steps of the world.
"""
