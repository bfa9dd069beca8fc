"""The mathematics of (smoothed, relaxed) conditional value-at-risk: functions of losses, nothing of networks.

No public names.
"""
