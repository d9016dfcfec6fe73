"""Tools for language models over the Model Context Protocol. `route.py` needs the extra mcp; `tools.py` does not."""
