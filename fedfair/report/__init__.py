"""What people read: tables of a run's result."""
