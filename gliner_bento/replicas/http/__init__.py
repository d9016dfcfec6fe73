"""A replica in another process: `ReplicaApp` serves it over HTTP, `HttpReplica` is its client."""
