"""How tenants share a server: a fair queue, a shared capacity, an estimate of costs."""
