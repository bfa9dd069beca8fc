"""Training on pooled records: the references that federated training is compared with."""
