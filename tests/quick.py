"""Settings of servers that tests start in processes of their own."""

UNCHECKED = {"self_test": "false", "batch_invariant": "false", "warmup_iterations": "0"}
"""Without the engine's self-checks a start takes two thirds of the CPU time. The `server` of tests/e2e has them."""

FLAGS = [word for name, value in UNCHECKED.items() for word in ("--set", f"{name}={value}")]
"""Of `python -m reliability`."""

ENVIRONMENT = {f"GLINER_{name.upper()}": value for name, value in UNCHECKED.items()}
