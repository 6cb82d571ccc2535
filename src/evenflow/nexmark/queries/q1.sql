-- Currency conversion: the price of every bid in euros. A projection.
SELECT auction, bidder, 0.908D * price AS price, dateTime, extra
FROM bid
