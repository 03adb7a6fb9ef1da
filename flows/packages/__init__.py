"""What happens to packages after they are built: verify again, promote, rebuild, sign."""
