"""Everything a consortium agrees on: the plan file, its digest and each site's approval. No public names."""
