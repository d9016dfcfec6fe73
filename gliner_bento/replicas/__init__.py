"""The `Replica` contract, the replica in this process, and the transport to replicas in other processes."""
