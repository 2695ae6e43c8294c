"""Pipelines: walking a graph here, task by task, and compiling it to Kubeflow Pipelines.

This room knows graphs and functions by name. It must not know how a person writes a step: callables, bundles and
clients are handed to it.
"""
