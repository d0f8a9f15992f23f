"""Reader of the execution traces of MLCommons Chakra, and the records that they are made of."""
