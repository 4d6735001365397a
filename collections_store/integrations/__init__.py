"""What plugs into other frameworks: a module for each, which needs that framework and nothing else."""
