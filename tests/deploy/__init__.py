"""What is shipped beside the package: containers, units, manifests, dashboards, and the documentation's site."""
