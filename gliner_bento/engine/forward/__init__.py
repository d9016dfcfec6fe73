"""From tensors to what each row holds: one module per kind of head, chosen by the model's class."""
