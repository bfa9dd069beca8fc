"""What a run is: its state, its next request, and what an aggregate does to the model. No torch."""
