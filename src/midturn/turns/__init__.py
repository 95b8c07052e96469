"""Running one turn: from the accepted input to the commit."""
