"""Trained policies behind HTTP: requests, micro-batches, sessions, metrics."""
