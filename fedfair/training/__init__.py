"""What one site computes for each statistic: local steps, losses and noise. Needs torch."""
