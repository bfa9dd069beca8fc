"""The clip of masked training sums, which follows the sizes of the changes."""
