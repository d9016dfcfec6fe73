"""Replicas in a Ray cluster: `client.py` calls one, `fleet.py` all that run; `gliner_bento/ray/host.py` answers."""
