"""Blueprint listo: four delivery modes, two providers per channel, receipts, locales and alerts of failures."""
