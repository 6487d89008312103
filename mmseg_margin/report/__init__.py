"""Numbers, pictures and pages of the reports of comparisons and searches."""
