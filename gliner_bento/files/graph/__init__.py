"""A graph of the entities and relations of many documents. Knows no model and no server."""
