"""Computes one site's part of each statistic: local steps, losses and noise. Needs torch. No public names."""
