"""The fast paths: requests that are answered from a template, without being decoded. Each is an entry of THE TABLE."""
