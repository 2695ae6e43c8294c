"""The state of the platform in SQL: functions, runs, tasks, attempts, leases, logs, the outbox, tokens.

Every function here takes a `Transaction` and is one step of it: a state change, its timeline row and its CloudEvent are
committed together or not at all. This room must not know HTTP, processes or devices' drivers; it is told the time.
"""
