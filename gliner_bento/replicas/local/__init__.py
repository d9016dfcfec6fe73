"""A replica in this process: a scheduler over one engine, and its adapters."""
