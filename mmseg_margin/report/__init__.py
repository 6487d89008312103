"""What comparisons and searches write their reports with."""
