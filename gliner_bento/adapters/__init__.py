"""LoRA adapters: their format, and the tiers that hold them: disk, memory, slots of the device.

PUT, adapter_root, hub ──▶ disk.py ──▶ adapter.py ──▶ cache.py ──▶ device.py
                           files       checked        in memory,   in a slot, while
                           verified    tensors        LRU          a batch needs it

The engine computes with adapters (see `device.AdapterSink`); this package does not import the engine.
"""
