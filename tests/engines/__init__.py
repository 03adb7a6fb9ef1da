"""What tests of the engines and of the build share."""
