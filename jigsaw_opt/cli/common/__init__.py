"""What several subcommands share: the parser, common options, inputs, sweeps, and printing."""
