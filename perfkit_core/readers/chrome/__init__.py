"""Reading of Chrome traces, the JSON format that torch and Paddle export."""
