"""Many plans that differ in a few values, run side by side and compared on validation records. No public names."""
