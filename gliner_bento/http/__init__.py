"""HTTP of a gateway and of a replica: large answers in pieces, closed connections."""
