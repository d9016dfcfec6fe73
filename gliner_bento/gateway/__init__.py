"""HTTP in front of the runner: limits, one error body, compat routes, OpenAPI. Knows no torch and no scheduler."""
