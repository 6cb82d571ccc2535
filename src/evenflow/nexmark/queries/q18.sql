-- Last bid: the newest bid of every bidder on every auction. The best row of a key.
SELECT auction, bidder, price, channel, url, dateTime, extra
FROM (
  SELECT *, row_number() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC) AS place
  FROM bid
)
WHERE place <= 1
