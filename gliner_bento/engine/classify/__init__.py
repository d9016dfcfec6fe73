"""Models that classify texts and extract nothing: GLiClass."""
