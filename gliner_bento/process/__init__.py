"""Processes of the server: how they are started again, end, and are noticed when they hang."""
