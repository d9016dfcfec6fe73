"""Fleets of up to 1,000 replicas on simulated time: `python -m benchmark --simulate`.

The fleet is the real one (`gliner_bento/replicas/fleet`), on an event loop whose time is simulated. Its replicas are
simulated: their service times come from committed measurements (`curves.py`).
"""
