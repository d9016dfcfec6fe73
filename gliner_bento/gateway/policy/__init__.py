"""Who may call, who waits, and who is refused: tenants and their keys, rates, and overload."""
