"""What runs inside the pods of a compiled pipeline: reading KFP's executor input, doing one task, writing its outputs.

A pod starts in a fraction of a second, so this room imports neither kfp nor kubernetes, and httpx only where the
training API is asked. What it is to do came with the pod's arguments, as an `Order`.
"""
