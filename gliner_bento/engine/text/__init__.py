"""From an item to what one forward pass takes: words, tokens, prompts, windows, label groups, tensors."""
