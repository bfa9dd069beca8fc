"""What fedfair is installed with: the locked versions and their hashes, wheels, licences and the bill of materials."""
