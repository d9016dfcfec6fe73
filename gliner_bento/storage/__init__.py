"""Files and archives: locks, durable writes, checksums, archives read within limits."""
