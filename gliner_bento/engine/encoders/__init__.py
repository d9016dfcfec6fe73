"""From token ids to embeddings of words, labels and relations. One module per backbone with a packed form."""
