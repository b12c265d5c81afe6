"""Log lines, metrics and traces, and the scrubber that keeps secrets out of all of them."""
