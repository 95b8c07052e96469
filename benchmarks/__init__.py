"""Benchmarks. They report ratios within one run and assert nothing. ``make bench`` runs them."""
