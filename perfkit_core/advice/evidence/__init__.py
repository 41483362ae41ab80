"""What several rules read out of a recording before they judge: copies, outer operators, ways there and back, costs."""
