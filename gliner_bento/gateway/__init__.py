"""HTTP in front of the runner: limits, one error body, compat routes, OpenAPI. Imports no torch and no scheduler."""
