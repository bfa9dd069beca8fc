"""Training on pooled records: the oracles that federated training is measured against."""
