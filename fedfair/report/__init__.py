"""What people read: the tables of a run's result."""
