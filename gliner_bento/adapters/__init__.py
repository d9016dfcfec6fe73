"""LoRA adapters: their format, and the tiers that hold them: disk, memory, slots of the device.

PUT, adapter_root, hub ──▶ disk.py ──▶ adapter.py ──▶ cache.py ──▶ device.py
                           files       checked,       in memory,   in a slot, while
                           verified    in PEFT's      LRU          a batch needs it
                                       terms

The engine computes with adapters (see `device.AdapterTarget`); this package imports nothing of it.
"""
