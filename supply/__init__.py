"""All that fedfair is installed with: locked versions and hashes, wheels, licences, the bill of materials."""
