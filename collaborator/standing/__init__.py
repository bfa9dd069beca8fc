"""A site's standing service: it follows the consortium's record and runs the studies that its own people approved.

`schedule.py` decides what is to be done, from facts alone; `service.py` does it, by the settings of `site.yaml`.

No public names.
"""
