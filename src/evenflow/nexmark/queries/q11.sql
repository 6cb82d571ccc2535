-- User sessions: how many bids a bidder makes without ten seconds of rest. Session windows.
SELECT bidder, count(*) AS bids, session_window.start AS starts, session_window.end AS ends
FROM bid
GROUP BY bidder, session_window(dateTime, '10 seconds')
