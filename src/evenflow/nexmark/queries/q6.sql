-- Average selling price of a seller: the mean of the winning prices of the seller's last eleven auctions, in the order in which they end.
SELECT seller, expires, id, avg(final) OVER (
  PARTITION BY seller ORDER BY expires, id ROWS BETWEEN 10 PRECEDING AND CURRENT ROW
) AS mean
FROM (
  SELECT a.id, a.seller, a.expires, max(b.price) AS final
  FROM auction AS a
  JOIN bid AS b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
  GROUP BY a.id, a.seller, a.expires
)
