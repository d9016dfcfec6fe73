"""From embeddings to predictions: span, token and relation heads, decoding, overlap resolution."""
