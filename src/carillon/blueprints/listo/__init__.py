"""Document 002: four delivery modes, two providers a channel, receipts, locales and failures that somebody hears of."""
