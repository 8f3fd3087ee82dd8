from glasshead.cli import main

main()
