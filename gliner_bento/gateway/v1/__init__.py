"""The routes of the public API, one module per subject; each declares its endpoints and their documentation."""
