"""Puts together what `import fedfair` offers; import the names from `fedfair` itself. No public names."""
