-- Log to files: every bid with its day and minute, to partition files by. Text from timestamps.
SELECT auction, bidder, price, dateTime, extra,
  substring(cast(dateTime AS string), 1, 10) AS dt, substring(cast(dateTime AS string), 12, 5) AS hm
FROM bid
