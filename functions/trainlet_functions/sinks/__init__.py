"""Sinks: what the platform tells of itself goes to the addresses that a project configures, and to its triggers.

`fanout` hands news of the outbox on (one letter for each sink that wants it), `letters` keeps them until they are
delivered or dead, `courier` carries them, `addresses` says where it may go. This room must not know what happened: news are
made where it happens, in the transaction that makes it so.
"""
