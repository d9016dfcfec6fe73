"""The container image and the chart's pod, tried with podman: `python -m deploy.containers image|pod`."""
