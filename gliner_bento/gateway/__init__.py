"""HTTP in front of the runner: limits, one error body, compat routes, OpenAPI. Knows neither torch nor the scheduler."""
