"""Documents in files: records, bulk extraction, redaction, graphs, evaluation."""
