"""A site's own rules: what it does with each request of an aggregator. Pure: whoever carries files calls them."""
