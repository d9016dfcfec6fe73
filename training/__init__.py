"""Training of the bundled demo model: data, sampling, loop, export and evaluation."""
