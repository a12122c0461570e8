-- A level's bin is of eight of the level below now, least, greatest and mean power over 128,
-- 1024, 8192, 65536 and 524288 scans: half as many bins at most are read for a picture. The
-- pyramids that are there are made anew from the chunks (wattmark host does so when it starts).
DELETE FROM pyramid;
DELETE FROM pyramid_whole;
