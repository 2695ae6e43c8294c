"""An imitation of what Knative runs around a worker, on loopback: what it does was observed on a real cluster.

The training API and the workers are the real ones, as processes; only their surroundings are imitated. Time runs `speed`
times faster than in a cluster, so that a window of a minute takes seconds. It must not import trainlet's own rooms.
"""
