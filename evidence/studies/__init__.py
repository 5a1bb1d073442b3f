"""Measurements that need more than one run's record; each writes its rows to results/."""
