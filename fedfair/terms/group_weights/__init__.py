"""The adversary's weights of groups that are known by name (FedMinMax)."""
