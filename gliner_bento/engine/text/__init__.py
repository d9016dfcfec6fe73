"""From an item to the input of a forward pass: words, tokens, prompts, windows, label groups, tensors."""
