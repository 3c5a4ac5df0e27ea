"""What every client stands on: connections, signatures, routes, questions to brokers, and one session of all that."""
