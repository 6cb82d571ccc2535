-- Pass through: every bid as it is. What the engine itself costs.
SELECT auction, bidder, price, dateTime, extra
FROM bid
