"""What a server reports of itself: log records, metrics, spans."""
