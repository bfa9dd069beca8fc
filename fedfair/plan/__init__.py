"""What a consortium agrees on: the plan file, its digest, each site's approval and each site's own policy."""
