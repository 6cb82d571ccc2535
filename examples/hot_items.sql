-- The auctions with most bids in the last ten seconds, every two seconds, of a made-up auction house (Nexmark q5).
CREATE TEMPORARY VIEW bid USING nexmark
OPTIONS (stream 'bid', events '100000', event_rate '1000', disorder '100', event_time 'dateTime', delay '101 ms');

CREATE TEMPORARY VIEW counts AS
SELECT auction, count(*) AS num, window.start AS starts, window.end AS ends
FROM bid
GROUP BY auction, window(dateTime, '10 seconds', '2 seconds');

CREATE TEMPORARY VIEW most AS
SELECT max(num) AS num, starts, ends
FROM counts
GROUP BY starts, ends;

SELECT c.auction, c.num, c.ends
FROM counts AS c
JOIN most AS m ON c.starts = m.starts AND c.ends = m.ends AND c.num = m.num;
