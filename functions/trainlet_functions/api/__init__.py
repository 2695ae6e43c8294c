"""The training API over HTTP: resources on top of the state room, one small file each.

A request is validated at the edge, checked against its token, and answered from one transaction. This room must not
hold state of its own, so that any replica may answer any request.
"""
