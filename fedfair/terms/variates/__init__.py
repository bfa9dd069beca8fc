"""Control variates: every local step is corrected by how its site differs from all of them (SCAFFOLD)."""
