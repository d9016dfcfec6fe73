"""Compares gliner-bento with other ways to serve GLiNER models. Part of the repository; not shipped."""
