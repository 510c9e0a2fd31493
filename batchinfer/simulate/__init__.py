"""The simulated provider: real HTTP on loopback, limits, latency and faults on order."""
