"""Deployment: container, Helm chart, Ray, and their tests."""
