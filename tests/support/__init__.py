"""What tests share: hand-made traces, recordings, readers that know nothing of perfkit."""
