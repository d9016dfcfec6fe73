"""Training of the bundled model: data, sampling, loop, export and evaluation. Not shipped."""
