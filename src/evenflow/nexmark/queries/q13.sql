-- Bounded side input: every bid with the value that a table has for its auction. A join with a table.
SELECT b.auction, b.bidder, b.price, b.dateTime, s.value
FROM bid AS b
JOIN side_input AS s ON b.auction % 10000 = s.key
