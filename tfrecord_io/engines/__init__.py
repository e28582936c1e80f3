"""Adapters: each translates one engine's objects to the core and back, and nothing else."""
