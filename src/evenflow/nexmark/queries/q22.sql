-- Directories of an address: its fourth, fifth and sixth part. Text functions.
SELECT auction, bidder, price, channel,
  substring_index(substring_index(url, '/', 4), '/', -1) AS dir1,
  substring_index(substring_index(url, '/', 5), '/', -1) AS dir2,
  substring_index(substring_index(url, '/', 6), '/', -1) AS dir3
FROM bid
