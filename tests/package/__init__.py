"""Builds the wheel and the sdist, installs each into an empty environment and runs a broker of it: `make package`."""
