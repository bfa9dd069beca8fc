"""How each deployable algorithm weighs the losses of a batch."""
