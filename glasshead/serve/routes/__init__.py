"""The HTTP routes: one file for each view of the page, and one for the OpenAI API."""
