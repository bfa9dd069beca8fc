"""Models, data, local training, the server's step and the simulation of a whole federation in one process."""
