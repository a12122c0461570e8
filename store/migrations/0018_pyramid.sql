-- A bin of level 0 is of 128 scans now: least, greatest and mean power over 128, 2048,
-- 32768 and 524288 scans. Half as many pages are made while samples come in. Those that
-- are there are made anew from the chunks (wattmark host does so when it starts).
DELETE FROM pyramid;
DELETE FROM pyramid_whole;
