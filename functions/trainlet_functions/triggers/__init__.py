"""What starts runs by itself: events from outside, moments of a clock, and the flow from a match to a run.

Every stateful function here takes a `Transaction` and is one step of it, as in the state room: an event, its matches and
the runs that they start are committed together or not at all. This room must not know HTTP or processes; it is told the
time, and whoever drives the runs that it creates is started by the platform.
"""
