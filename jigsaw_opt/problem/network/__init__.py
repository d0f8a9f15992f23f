"""Links and routes: policies of routes, least walks, the best channel, and how transfers share links."""
