"""Weight decay: every round takes a share of each weight away, so that none grows without need."""
