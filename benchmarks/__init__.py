"""Benchmarks: figures as ratios within one run, never asserted. ``make bench`` runs them."""
