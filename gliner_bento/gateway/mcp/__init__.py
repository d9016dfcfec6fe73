"""Tools for language models over the Model Context Protocol. Only `route.py` needs the extra `mcp`."""
