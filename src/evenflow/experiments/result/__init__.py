"""What was found, beside what a paper found and what must be reached; as text, Markdown and charts.

Nothing here knows how it was measured.
"""
