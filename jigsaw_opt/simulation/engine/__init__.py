"""The run of a simulation, from event to event, and what it is run on."""
