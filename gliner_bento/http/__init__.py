"""HTTP of gateways and replicas: connections of a client, large answers in pieces, disconnected clients."""
