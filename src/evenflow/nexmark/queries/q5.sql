-- Hot items: the auctions with most bids in the last ten seconds, every two seconds. Sliding windows, and their maximum joined to them.
WITH counts AS (
  SELECT auction, count(*) AS num, window.start AS starts, window.end AS ends
  FROM bid
  GROUP BY auction, window(dateTime, '10 seconds', '2 seconds')
),
most AS (
  SELECT max(num) AS num, starts, ends
  FROM counts
  GROUP BY starts, ends
)
SELECT c.auction, c.num, c.starts, c.ends
FROM counts AS c
JOIN most AS m ON c.starts = m.starts AND c.ends = m.ends AND c.num = m.num
