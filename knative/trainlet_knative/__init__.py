"""Knative: the objects that make a function deployable, how demand is stated, and a pod's manners towards queue-proxy.

It knows a function by its spec and the cluster by its settings. It must not know tasks, attempts or the API's database:
whoever runs them talks to this room through the protocols of `trainlet.core`.
"""
