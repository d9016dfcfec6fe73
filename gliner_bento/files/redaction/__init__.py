"""Redaction of files: copies with replaced spans, and the originals again. Knows no model and no server."""
