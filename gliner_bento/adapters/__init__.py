"""LoRA adapters: their format, and where they are: on disk, in memory, in slots of the device.

PUT, adapter_root, hub ──▶ disk.py ──▶ adapter.py ──▶ cache.py ──▶ device.py
                           files       checked,       in memory,   in a slot, while
                           verified    in PEFT's      LRU          a batch needs it
                                       terms

What a layer computes with an adapter is the engine's (see `device.Sink`); nothing of the engine is imported here.
"""
