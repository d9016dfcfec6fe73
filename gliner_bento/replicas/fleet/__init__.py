"""Several replicas behind one `Replica`: dispatch, health and adapters. Knows no transport and no process."""
