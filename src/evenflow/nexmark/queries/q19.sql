-- Top bids: the ten highest bids on every auction. The best rows of a key.
SELECT auction, bidder, price, dateTime, place
FROM (
  SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, dateTime) AS place
  FROM bid
)
WHERE place <= 10
