-- Highest bid: the bids with the highest price of every ten seconds. A windowed maximum joined to its rows.
SELECT b.auction, b.bidder, b.price, b.dateTime, b.extra
FROM bid AS b
JOIN (
  SELECT max(price) AS most, window.start AS starts, window.end AS ends
  FROM bid
  GROUP BY window(dateTime, '10 seconds')
) AS m
ON b.price = m.most AND b.dateTime >= m.ends - INTERVAL 10 SECONDS AND b.dateTime < m.ends
