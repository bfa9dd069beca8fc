"""The words of a provider and of a site, as people would write them."""

PROVIDER = """\
provider: Heart consortium, heart@example.org
purpose: flags patients for a second reading
not_for: [people under 18]
oversight: a physician confirms each flag
version: "1.0"
"""

SITE = """\
title: biopsies of 1993 to 1995
collected: at the clinic, by routine care
people: adults who were referred; nobody from other regions
label: by two pathologists
gaps: smoking is missing
basis: broad consent, ethics vote 12/1993
contact: data@clinic-a.example.org
"""
