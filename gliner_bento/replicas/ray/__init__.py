"""Replicas in a Ray cluster: `client.py` calls one, `fleet.py` those that run; `gliner_bento/ray/host.py` answers."""
