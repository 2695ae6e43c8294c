"""Kubeflow Pipelines from the outside: compiling a graph to IR, checking it against KFP's limits, submitting it.

What runs inside the pods of a compiled pipeline is in `trainlet_pipelines.pods` and never imports kfp. This room knows
graphs and the facts about steps that are handed to it; it must not know how a person writes a step.
"""
