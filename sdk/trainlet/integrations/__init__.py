"""Other libraries' training loops with trainlet's checkpoints: one module for each library, imported by whoever has it.

A module knows its library and the object that `ctx.checkpoint` or `tl.checkpoint(...)` gives, nothing of workers or stores.
"""
