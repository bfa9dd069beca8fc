"""Sets of answers with a promise for every group: from opened histograms alone, no further sum. No torch."""
