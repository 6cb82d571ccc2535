-- Winning bids: the highest bid on every auction while it was open, the first of equal ones. A join with a bound in time, and the best row.
SELECT id, itemName, seller, category, expires, bidder, price, bidTime
FROM (
  SELECT *, row_number() OVER (PARTITION BY id ORDER BY price DESC, bidTime, bidder) AS place
  FROM (
    SELECT a.id, a.itemName, a.seller, a.category, a.expires, b.bidder, b.price, b.dateTime AS bidTime
    FROM auction AS a
    JOIN bid AS b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
  )
)
WHERE place <= 1
