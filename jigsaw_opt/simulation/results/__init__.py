"""What a simulation comes to: measures, tables and the folder that holds them."""
