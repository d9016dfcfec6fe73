"""A replica in another BentoML service: its client for the gateway, its server for the runner, their messages."""
