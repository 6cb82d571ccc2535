-- Bids per bidder in ten seconds. In Nexmark the windows are of processing time, which no two runs share; here they are of event time.
SELECT bidder, count(*) AS bids, window.start AS starts, window.end AS ends
FROM bid
GROUP BY bidder, window(dateTime, '10 seconds')
