"""leadline security: certificates, users and settings for development."""
