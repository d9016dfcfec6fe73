"""Redaction of texts and files: spans are replaced, and can be restored. Knows no model and no server."""
