"""Providers: the APIs of model vendors, under one retry policy, with one record per vendor.

A provider makes one attempt and never raises. Vendor differences are data. Models without native tool calls are
offered tools in the prompt.
"""
