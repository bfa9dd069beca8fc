"""Risk of the worst group from additive statistics alone: what a site adds, and what the sums prove."""
