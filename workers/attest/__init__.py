"""What is stated of a package beside its files: SBOM, provenance, recipe."""
