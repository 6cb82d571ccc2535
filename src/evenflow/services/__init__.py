"""Services that a user's function asks: so many calls at a time, each with a deadline, tried again where one fails.

`calls` has the threads and the loop in which they wait. Nothing here knows rows, epochs, sites or what an answer is for.
"""
