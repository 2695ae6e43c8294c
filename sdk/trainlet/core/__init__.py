"""Values, errors and protocols that every other room speaks.

This room exists so that a notebook, a worker pod and the training API mean the same thing by "task" or "epoch". It
holds what crosses a boundary (specifications, wire messages, graphs, envelopes) and the seams (`protocols`).

It must not know how anything is stored, sent or scheduled, and it imports only the standard library and pydantic: a
pod that imports it never pays for kfp, kubernetes, flask or SQLAlchemy.
"""
