"""Throughput of the agent lifecycle: scenarios, peers and reports. Start with `benchmarks/README.md`."""
