"""Parameters that sites train and keep to themselves, from round to round (FedPer, FedBN)."""
