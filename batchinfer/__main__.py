"""`python -m batchinfer` is `batchinfer`."""

from batchinfer.cli.main import main

main()
