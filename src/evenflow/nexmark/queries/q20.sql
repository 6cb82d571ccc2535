-- Bids with their auctions, of one category. An equality join of two streams without a bound in time.
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.dateTime, a.itemName, a.initialBid, a.reserve, a.expires, a.seller, a.category
FROM bid AS b
JOIN auction AS a ON b.auction = a.id
WHERE a.category = 10
