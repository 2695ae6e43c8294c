"""A real cluster as the other target of the contract: what the imitation does by itself, done with Kubernetes' API.

It works in one namespace that is there already, with a Broker in it, and takes away whatever it put there.
"""
