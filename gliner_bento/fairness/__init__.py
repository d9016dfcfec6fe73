"""How those who share a server share it: one fair queue, one rule for room, one estimate of costs."""
