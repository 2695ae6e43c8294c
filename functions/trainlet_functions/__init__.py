"""What runs behind the training API: its state, the HTTP server, workers and their children, checkpoints, the meter.

This room serves functions; it must not know how a person writes a step or a pipeline. It imports `trainlet_knative`,
`trainlet.client` and `trainlet.core`, and never the SDK: user code reaches it as a bundle.
"""
