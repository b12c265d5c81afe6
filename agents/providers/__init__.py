"""Providers: the wires to model vendors, with one retry policy above them and one record for each vendor.

A wire makes one attempt and never raises. What each vendor wants differently is data; a model without native calls is told
of its tools in the prompt.
"""
