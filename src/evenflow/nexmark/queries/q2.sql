-- Selection: bids on certain auctions. A filter.
SELECT auction, price
FROM bid
WHERE auction % 123 = 0
