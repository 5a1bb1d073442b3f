"""Pages of the documentation that are written from records, measurements and the code itself."""
