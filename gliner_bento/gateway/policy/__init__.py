"""Who may call, and who is refused: tenants, web pages, rates, and overload."""
