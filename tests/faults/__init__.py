"""Random faults for groups of members that are processes, and a check of what they consumed."""
