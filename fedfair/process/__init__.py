"""What every process needs: how it starts and stops, its locks and logs, and what a terminal shows."""
