"""The demo of `outlast demo`: an auction whose worker is killed, which then waits for a decision.

- `driver` runs one demo from the command line to the exit code;
- `scenario` plays the auction, `sample` one of the other purchases;
- `state` holds the saved facts, the clocks and the progress of the run;
- `processes` starts and stops the market, the workers and commands; `output` prints;
- `proof` checks the outcome against the suppliers' record, `page` writes the report.
"""
