"""Inference: an item in, entities and relations out. `base` is the contract; nothing here knows of HTTP or queues."""
