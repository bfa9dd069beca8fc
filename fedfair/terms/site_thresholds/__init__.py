"""Thresholds that sites keep to themselves, from round to round (local BPF)."""
