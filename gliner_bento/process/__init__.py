"""Processes of the server: start, restart, end, and detection of hanging ones."""
