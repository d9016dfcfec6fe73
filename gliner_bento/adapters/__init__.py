"""LoRA adapters: their format, where they lie, which of them are in memory, and how rows are multiplied with them.

PUT, adapter_root, hub ──▶ disk.py ──▶ adapter.py ──▶ cache.py ──▶ linear.py
                           files       checked,       in memory,   in the batch that
                           verified    in PEFT's      by uses      runs now, row by row
                                       terms
"""
