"""What tests share: datasets and sources of their own making, strategies, stores."""
