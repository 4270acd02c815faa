"""Tables as the server has them: current rows and their history in natural types, kept from the topics."""
