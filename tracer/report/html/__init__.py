"""The report as one HTML page that opens offline."""
