"""Where items are processed: the `Replica` contract, the one of this process, and the transports to others."""
