"""Replicas in a Ray cluster: `host.py` is a Ray Serve deployment, `handle.py` the gateway's side of it."""
