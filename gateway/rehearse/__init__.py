"""Past turns against another config, with tools answered from the journal and nothing sent."""
