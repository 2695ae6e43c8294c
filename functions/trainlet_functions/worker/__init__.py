"""The worker: one HTTP server that is woken by events, and one attempt at a time that it keeps alive, metered and heard.

It asks the training API before it does anything: an event is a wake-up, the claim decides. It must not know how the API
keeps its state, and it never runs user code itself: that is the child's.
"""
